extern crate std;

use super::*;
use crate::{
    map::RTC_IRQ,
    testing::{TestEnv, accesses},
};
use proptest::prelude::*;

const HZ: u64 = 10_000_000;
const EPOCH: u64 = 1_700_000_000 * NS_PER_SECOND;

fn get(rtc: &mut Rtc, env: &TestEnv, offset: u64) -> u64 {
    rtc.read(offset, Width::Word, env).unwrap()
}

fn put(rtc: &mut Rtc, env: &TestEnv, offset: u64, value: u64) {
    rtc.write(offset, Width::Word, value, env).unwrap();
}

/// As Linux reads it.
fn time(rtc: &mut Rtc, env: &TestEnv) -> u64 {
    let low = get(rtc, env, spec::TIME_LOW);
    get(rtc, env, spec::TIME_HIGH) << 32 | low
}

#[test]
fn time_follows_the_counter() {
    let (mut rtc, env) = (Rtc::new(RTC_IRQ, HZ, EPOCH), TestEnv::default());
    assert_eq!(time(&mut rtc, &env), EPOCH);
    env.now.set(25 * HZ + 1);
    assert_eq!(time(&mut rtc, &env), EPOCH + 25 * NS_PER_SECOND + 100);
}

#[test]
fn the_high_half_is_frozen_by_the_low() {
    let (mut rtc, env) = (Rtc::new(RTC_IRQ, NS_PER_SECOND, 0xffff_ffff), TestEnv::default());
    assert_eq!(get(&mut rtc, &env, spec::TIME_LOW), 0xffff_ffff);
    env.now.set(1);
    assert_eq!(get(&mut rtc, &env, spec::TIME_HIGH), 0);
    assert_eq!(time(&mut rtc, &env), 1 << 32);
}

#[test]
fn an_alarm_fires_when_due_and_is_cleared() {
    let (mut rtc, env) = (Rtc::new(RTC_IRQ, HZ, EPOCH), TestEnv::default());
    let due = EPOCH + 2 * NS_PER_SECOND;
    put(&mut rtc, &env, spec::ALARM_HIGH, due >> 32);
    put(&mut rtc, &env, spec::ALARM_LOW, due & 0xffff_ffff);
    put(&mut rtc, &env, spec::IRQ_ENABLED, 1);
    assert_eq!(get(&mut rtc, &env, spec::ALARM_STATUS), 1);
    assert_eq!(rtc.alarm_ticks(&env), Some(2 * HZ));
    env.now.set(2 * HZ - 1);
    rtc.poll(&env);
    assert!(!env.level(RTC_IRQ));
    env.now.set(2 * HZ);
    rtc.poll(&env);
    assert!(env.level(RTC_IRQ));
    assert_eq!(rtc.alarm_ticks(&env), None);
    put(&mut rtc, &env, spec::CLEAR_INTERRUPT, 1);
    assert!(!env.level(RTC_IRQ));
}

#[test]
fn an_alarm_in_the_past_fires_at_once_and_can_be_disarmed() {
    let (mut rtc, env) = (Rtc::new(RTC_IRQ, HZ, EPOCH), TestEnv::default());
    put(&mut rtc, &env, spec::IRQ_ENABLED, 1);
    put(&mut rtc, &env, spec::ALARM_LOW, 1);
    assert!(env.level(RTC_IRQ));
    put(&mut rtc, &env, spec::ALARM_HIGH, 0xffff_ffff);
    put(&mut rtc, &env, spec::ALARM_LOW, 0);
    assert!(rtc.alarm_ticks(&env).is_some());
    put(&mut rtc, &env, spec::CLEAR_ALARM, 0);
    assert_eq!(rtc.alarm_ticks(&env), None);
}

/// A clock that was set back to before the counter began must not be due for ever.
#[test]
fn an_alarm_of_a_clock_that_was_set_back_is_due_later() {
    let (mut rtc, env) = (Rtc::new(RTC_IRQ, HZ, EPOCH), TestEnv::default());
    env.now.set(10 * HZ);
    put(&mut rtc, &env, spec::TIME_HIGH, 0);
    put(&mut rtc, &env, spec::TIME_LOW, 0);
    put(&mut rtc, &env, spec::ALARM_LOW, 2_000_000_000);
    assert_eq!(rtc.alarm_ticks(&env), Some(12 * HZ));
    rtc.poll(&env);
    assert_eq!(get(&mut rtc, &env, spec::ALARM_STATUS), 1);
    env.now.set(12 * HZ);
    rtc.poll(&env);
    assert_eq!(get(&mut rtc, &env, spec::ALARM_STATUS), 0);
}

#[test]
fn the_guest_can_set_the_clock() {
    let (mut rtc, env) = (Rtc::new(RTC_IRQ, HZ, EPOCH), TestEnv::default());
    put(&mut rtc, &env, spec::TIME_HIGH, 3);
    put(&mut rtc, &env, spec::TIME_LOW, 4);
    assert_eq!(time(&mut rtc, &env), 3 << 32 | 4);
    rtc.reset();
    assert_eq!(time(&mut rtc, &env), 3 << 32 | 4);
}

proptest! {
    /// The multiplication agrees with the division for a century of ticks of any real timebase.
    #[test]
    fn the_scale_is_exact(hz in 1_000_u64..4_000_000_000, seconds in 0_u64..3_000_000_000, part in 0.0..1.0_f64) {
        let ticks = hz * seconds + (hz as f64 * part) as u64;
        let exact = (u128::from(ticks) * u128::from(NS_PER_SECOND) / u128::from(hz)) as u64;
        let scaled = Scale::new(hz).ns(ticks);
        prop_assert!(scaled.wrapping_sub(exact) <= 1, "{} is not {}", scaled, exact);
    }

    #[test]
    fn random_accesses_do_not_panic(steps in accesses(0x40), hz in any::<u64>(), epoch in any::<u64>(), now in any::<u64>()) {
        let (mut rtc, env) = (Rtc::new(RTC_IRQ, hz, epoch), TestEnv::default());
        env.now.set(now);
        for (is_write, offset, width, value) in steps {
            if is_write {
                rtc.write(offset, width, value, &env).unwrap();
            } else {
                rtc.read(offset, width, &env).unwrap();
            }
            let alarm = rtc.alarm_ticks(&env);
            prop_assert!(alarm.is_none_or(|ticks| ticks > now || ticks == u64::MAX), "polling makes progress");
            rtc.poll(&env);
        }
    }
}

use std::vec::Vec;

use device::{Device, IrqLine, Width};
use proptest::prelude::*;

use super::inflation::MAX_NUMBERS;
use super::*;
use crate::testing::{Buffer, Driver, RAM_BASE, TestEnv};
use crate::transport::Trigger;

const RAM: usize = 4 << 20;

/// Pages that the host takes back in one step.
const STEP: u64 = 512;

/// What was released, and whether nothing can be.
#[derive(Default)]
struct Released(Vec<(u64, u64)>, bool);

impl Released {
    /// What it took since the last call, in releases and pages.
    fn take_work(&mut self) -> (usize, u64) {
        let all = core::mem::take(&mut self.0);
        (all.len(), all.iter().map(|(_, len)| len / BASE_PAGE).sum())
    }
}

impl BalloonBackend for Released {
    fn release(&mut self, start: GuestPhysAddr, len: u64) -> Release {
        if self.1 {
            return Release::default();
        }
        let bytes = len.min(STEP * BASE_PAGE);
        self.0.push((start.raw(), bytes));
        Release { bytes, pages: bytes / BASE_PAGE }
    }
}

type Dev = VirtioMmio<Balloon<Released>>;

fn balloon() -> Dev {
    VirtioMmio::new(Balloon::new(Released::default()), IrqLine(4), Trigger::Edge)
}

fn inflate(driver: &mut Driver<'_>, device: &mut Dev, numbers: &[u32]) {
    let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let list = driver.readable(&raw);
    driver.add(INFLATE_QUEUE, &[list], false);
    driver.notify(device, INFLATE_QUEUE).unwrap();
    while device.has_backlog() {
        device.poll(driver.env).unwrap();
    }
    assert_eq!(driver.used(INFLATE_QUEUE).len(), 1);
}

fn report(driver: &mut Driver<'_>, device: &mut Dev, queue: u16, blocks: &[(u64, u32)]) {
    let buffers: Vec<Buffer> =
        blocks.iter().map(|&(start, len)| Buffer { addr: GuestPhysAddr::new(start), len, is_writable: true }).collect();
    driver.add(queue, &buffers, true);
    driver.notify(device, queue).unwrap();
    while device.has_backlog() {
        device.poll(driver.env).unwrap();
    }
    assert_eq!(driver.used(queue).len(), 1);
}

#[test]
fn inflated_pages_are_released_in_runs_and_foreign_ones_ignored() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let first = (RAM_BASE >> 12) as u32 + 600;
    inflate(&mut driver, &mut device, &[first, first + 1, first + 2, 0, u32::MAX, first + 9, first + 8, first + 20]);
    let page = |number: u32| u64::from(number) << 12;
    assert_eq!(
        device.model().backend().0,
        [(page(first), 3 << 12), (page(first + 8), 2 << 12), (page(first + 20), 1 << 12)]
    );
    assert_eq!(device.model().metrics().pages_refused, 2);
    let long: Vec<u32> = (first..first + 200).collect();
    inflate(&mut driver, &mut device, &long);
    assert_eq!(device.model().backend().0.last(), Some(&(page(first), 200 << 12)));
}

#[test]
fn a_chain_of_page_numbers_without_end_is_cut() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let first = (RAM_BASE >> 12) as u32 + 600;
    // Every other page, so that each is a release of its own; the same ones again and again.
    let apart: Vec<u8> = (0..MAX_NUMBERS as u32 + 500).flat_map(|n| (first + n % 8 * 2).to_le_bytes()).collect();
    for _ in 0..2 {
        let list = driver.readable(&apart);
        driver.add(INFLATE_QUEUE, &[list], false);
    }
    driver.notify(&mut device, INFLATE_QUEUE).unwrap();
    let (mut all, mut calls, mut used) = (0, 0, 0);
    loop {
        calls += 1;
        used += driver.used(INFLATE_QUEUE).len();
        let (releases, pages) = device.model_mut().backend_mut().take_work();
        assert!(releases as u64 <= 512 / RELEASE_COST + 1, "{releases} releases of {pages} pages in one call");
        all += releases;
        if !device.has_backlog() {
            break;
        }
        device.poll(&env).unwrap();
    }
    assert_eq!((all, used), (2 * MAX_NUMBERS, 2));
    assert_eq!(device.model().metrics().bytes_inflated, 2 * MAX_NUMBERS as u64 * BASE_PAGE);
    assert!(calls > 2 * MAX_NUMBERS / 20, "{calls} calls");
}

/// The rest of a list that the driver has forgotten is not released, and the next list is whole.
#[test]
fn a_list_of_pages_ends_with_its_queue() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let first = (RAM_BASE >> 12) as u32 + 600;
    let apart: Vec<u8> = (0..200).flat_map(|n| (first + n * 2).to_le_bytes()).collect();
    let list = driver.readable(&apart);
    driver.add(INFLATE_QUEUE, &[list], false);
    driver.notify(&mut device, INFLATE_QUEUE).unwrap();
    assert!(device.has_backlog());
    driver.start(&mut device, u64::MAX);
    device.model_mut().backend_mut().take_work();
    device.poll(&env).unwrap();
    inflate(&mut driver, &mut device, &[first + 1, first + 2]);
    assert_eq!(device.model().backend().0, [(u64::from(first + 1) << 12, 2 << 12)]);
}

#[test]
fn reported_blocks_are_released_by_whole_pages_on_any_reporting_queue() {
    for queue in 2..5 {
        let env = TestEnv::new(RAM);
        let mut device = balloon();
        let mut driver = Driver::new(&env);
        driver.start(&mut device, u64::MAX);
        let block = RAM_BASE + (2 << 20);
        report(&mut driver, &mut device, queue, &[(block, 2 << 20), (block + 1, 0x2fff), (block + 5, 100)]);
        assert_eq!(device.model().backend().0, [(block, 2 << 20), (block + 0x1000, 0x2000)]);
    }
}

/// The 128 blocks of a report, each of so many pages.
fn long_report(pages: u32) -> Vec<Buffer> {
    let addr = GuestPhysAddr::new(RAM_BASE + (1 << 20));
    std::vec![Buffer { addr, len: pages << 12, is_writable: true }; usize::from(QUEUE_SIZE)]
}

#[test]
fn a_long_report_takes_several_calls() {
    for (pages, queue) in [(500, 2), (1, 2), (700, 3)] {
        let env = TestEnv::new(RAM);
        let mut device = balloon();
        let mut driver = Driver::new(&env);
        driver.start(&mut device, u64::MAX);
        for _ in 0..8 {
            driver.add(queue, &long_report(pages), true);
        }
        driver.notify(&mut device, queue).unwrap();
        let (mut calls, mut all, mut used) = (1, 0, driver.used(queue).len());
        loop {
            let (releases, pages) = device.model_mut().backend_mut().take_work();
            assert!(
                pages <= 512 + STEP && releases <= 512 / RELEASE_COST as usize + 1,
                "{pages} pages, {releases} releases"
            );
            all += pages;
            if !device.has_backlog() {
                break;
            }
            device.poll(&env).unwrap();
            calls += 1;
            used += driver.used(queue).len();
        }
        assert_eq!((all, used), (8 * 128 * u64::from(pages), 8), "each once");
        assert!(calls > 4, "{calls} calls");
        assert_eq!(device.model().metrics().bytes_reported, all << 12);
    }
}

/// A driver may have several queues of reports. One is served after the other.
#[test]
fn a_report_waits_for_one_of_another_queue() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    driver.add(3, &long_report(100), true);
    driver.notify(&mut device, 3).unwrap();
    driver.add(2, &[Buffer { addr: GuestPhysAddr::new(RAM_BASE), len: 0x1000, is_writable: true }], true);
    driver.notify(&mut device, 2).unwrap();
    assert_eq!((driver.used(3).len(), driver.used(2).len()), (0, 0));
    while device.has_backlog() {
        device.poll(&env).unwrap();
    }
    assert_eq!((driver.used(3).len(), driver.used(2).len()), (1, 1));
    assert_eq!(device.model_mut().backend_mut().take_work(), (129, 12801));
}

/// The rest of a report that the driver has forgotten is not released.
#[test]
fn a_report_ends_with_its_queue() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    driver.add(2, &long_report(100), true);
    driver.notify(&mut device, 2).unwrap();
    assert!(device.has_backlog());
    driver.start(&mut device, u64::MAX);
    device.model_mut().backend_mut().take_work();
    device.poll(&env).unwrap();
    report(&mut driver, &mut device, 3, &[(RAM_BASE, 0x1000)]);
    assert_eq!(device.model().backend().0, [(RAM_BASE, 0x1000)]);
}

/// The host need not take pages back: the guest hears that its report is done, and keeps them.
#[test]
fn a_host_that_takes_nothing_back_answers() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    device.model_mut().backend_mut().1 = true;
    report(&mut driver, &mut device, 2, &[(RAM_BASE, 0x20_0000), (RAM_BASE + 0x20_0000, 0x1000)]);
    let first = (RAM_BASE >> 12) as u32;
    inflate(&mut driver, &mut device, &[first, first + 9]);
    let metrics = device.model().metrics();
    assert_eq!((metrics.bytes_reported, metrics.bytes_inflated), (0, 0));
}

#[test]
fn poisoned_pages_keep_their_content() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    driver.put(&mut device, 0x10c, 0xaaaa_aaaa);
    report(&mut driver, &mut device, 2, &[(RAM_BASE, 0x1000)]);
    assert!(device.model().backend().0.is_empty());
    driver.put(&mut device, 0x10c, 0);
    report(&mut driver, &mut device, 2, &[(RAM_BASE, 0x1000)]);
    assert_eq!(device.model().backend().0.len(), 1, "zeroes are what this guest expects");
    driver.start(&mut device, !spec::F_PAGE_POISON);
    driver.put(&mut device, 0x10c, 0xaaaa_aaaa);
    report(&mut driver, &mut device, 2, &[(RAM_BASE, 0x1000)]);
    assert_eq!(device.model().backend().0.len(), 2, "not negotiated");
    driver.start(&mut device, !spec::F_REPORTING);
    report(&mut driver, &mut device, 2, &[(RAM_BASE, 0x1000)]);
    assert_eq!(device.model().backend().0.len(), 2);
}

#[test]
fn a_target_reaches_the_driver_and_its_answer_the_host() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    device.set_target_pages(77, &env);
    assert_eq!((driver.get(&mut device, 0x60), driver.get(&mut device, 0x100), env.take_pulses()), (2, 77, 1));
    driver.put(&mut device, 0x104, 70);
    assert_eq!(device.model().actual_pages(), 70);
    driver.put(&mut device, 0x100, 5);
    device.write(0x105, Width::Byte, 9, &env).unwrap();
    assert_eq!((driver.get(&mut device, 0x100), device.model().actual_pages()), (77, 70), "not the driver's to write");
    let page = driver.readable(&[0; 4]);
    driver.add(DEFLATE_QUEUE, &[page], false);
    driver.notify(&mut device, DEFLATE_QUEUE).unwrap();
    assert_eq!(driver.used(DEFLATE_QUEUE).len(), 1);
    assert!(device.model().backend().0.is_empty());
}

#[test]
fn a_block_outside_ram_stops_the_guest() {
    let env = TestEnv::new(RAM);
    let mut device = balloon();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let addr = GuestPhysAddr::new(RAM_BASE + RAM as u64 - 0x1000);
    driver.add(2, &[Buffer { addr, len: 0x2000, is_writable: true }], false);
    assert_eq!(driver.notify(&mut device, 2).unwrap_err().value, addr.raw());
}

proptest! {
    #[test]
    fn only_whole_pages_of_ram_are_ever_released(
        numbers in proptest::collection::vec(prop_oneof![any::<u32>(), 0x7_fff0_u32..0x8_0410], 1..300),
        blocks in proptest::collection::vec((0_u64..RAM as u64, 1_u32..0x20_0000), 1..20),
    ) {
        let env = TestEnv::new(RAM);
        let mut device = balloon();
        let mut driver = Driver::new(&env);
        driver.start(&mut device, u64::MAX);
        inflate(&mut driver, &mut device, &numbers);
        let blocks: Vec<(u64, u32)> = blocks
            .into_iter()
            .map(|(start, len)| (RAM_BASE + start, len.min((RAM as u64 - start) as u32)))
            .collect();
        report(&mut driver, &mut device, 4, &blocks);
        for &(start, len) in &device.model().backend().0 {
            prop_assert!(len > 0 && start % BASE_PAGE == 0 && len % BASE_PAGE == 0);
            prop_assert!(start >= RAM_BASE && start + len <= RAM_BASE + RAM as u64);
        }
    }
}

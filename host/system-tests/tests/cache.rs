//! The bound of the disk cache.

use lab::rig::Rig;
use system_tests::debian::{Shell, debian, with_debian};
use system_tests::ok;

const MIB: u64 = 1 << 20;
const BOUND_MIB: u32 = 12;

/// Guests that read far more than the cache may hold, each with little memory: all is right, pages go as others come, and the
/// cache stays within its bound but for what is being read.
#[test]
fn guests_read_more_than_the_cache_holds() {
    /// What may be on its way from one disk: 64 operations of 32 blocks.
    const IN_FLIGHT: u64 = 8 * MIB;
    let rig = ok(Rig::new("bound", 2, 1024)).options(|options| options.disk_cache_mib = BOUND_MIB);
    let machine = ok(ok(with_debian(rig).scratch("data", 128)).boot());
    let specs = [debian("left", 1), debian("right", 1)];
    specs.iter().for_each(|spec| ok(machine.client().create_vm(spec.clone())));
    let [mut left, mut right] = Shell::start_all(&machine, specs.each_ref());
    let sum = "echo 3 >/proc/sys/vm/drop_caches; \
               find /usr/bin /usr/lib -xdev -type f | LC_ALL=C sort | sed -n 1,150p | xargs -d '\\n' cat | md5sum";
    let first = left.run(sum);
    for _ in 0..2 {
        assert_eq!(right.run(sum), first);
        assert_eq!(left.run(sum), first);
        let cached: u64 = ok(machine.stats()).disks.iter().map(|disk| disk.cached_bytes).sum();
        assert!(cached <= u64::from(BOUND_MIB) * MIB + IN_FLIGHT, "{cached} bytes are cached");
    }
    let reclaimed: u64 = ok(machine.stats()).disks.iter().map(|disk| disk.reclaimed_pages).sum();
    assert!(reclaimed > 10_000, "only {reclaimed} pages went");
    left.stop(&machine);
    right.stop(&machine);
    assert_eq!(ok(machine.lost_pages()), 0);
}

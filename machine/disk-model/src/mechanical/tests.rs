use super::*;

const MS: u64 = 1_000_000_000;

fn disk(scale: u32) -> Mechanical {
    let shape = MechanicalShape::hp97560();
    Mechanical::new(shape, scale, shape.geometry.sectors())
}

fn read(sector: u64, sectors: u64) -> Request {
    Request { operation: Operation::Read, sector, sectors }
}

fn write(sector: u64, sectors: u64) -> Request {
    Request { operation: Operation::Write, sector, sectors }
}

#[test]
fn the_preset_is_the_published_disk() {
    let shape = MechanicalShape::hp97560();
    assert_eq!(shape.geometry.sectors() * SECTOR_BYTES, 1_374_216_192);
    assert_eq!(shape.turn_ps / 1000, 14_992_503, "4,002 turns a minute");
    assert_eq!(shape.bus_sector_ps, 51_200_000, "10 MB/s");
    let ms = |distance| SeekCurve::HP97560.time_ps(distance) as f64 / 1e9;
    for (distance, want) in [(0, 0.0), (1, 3.64), (100, 7.24), (382, 11.058), (383, 11.064), (1961, 23.688)] {
        assert!((ms(distance) - want).abs() < 0.001, "{distance} cylinders take {} ms", ms(distance));
    }
}

#[test]
fn the_first_sector_is_at_the_start_of_a_turn() {
    // Overhead 2.2 ms, then the rest of the turn, one sector, and that sector on the bus.
    let shape = MechanicalShape::hp97560();
    let turn = shape.sector_ps() * 72;
    assert_eq!(disk(1).serve(0, read(0, 1)), turn + shape.sector_ps() + shape.bus_sector_ps);
    // The sector that comes under the head just after the overhead.
    let slot = shape.overhead_ps.div_ceil(shape.sector_ps());
    let done = disk(1).serve(0, read(slot, 1));
    assert_eq!(done, (slot + 1) * shape.sector_ps() + shape.bus_sector_ps);
}

#[test]
fn skews_let_long_requests_pass_without_losing_turns() {
    let shape = MechanicalShape::hp97560();
    let tracks = 40;
    let time = disk(1).serve(0, read(0, 72 * tracks)) - disk(1).serve(0, read(0, 1));
    let turns = time as f64 / shape.turn_ps as f64;
    // 39 changes of track, two of them to the next cylinder: 37 * 8 + 2 * 18 sectors of skew.
    let want = tracks as f64 + (37.0 * 8.0 + 2.0 * 18.0) / 72.0;
    assert!((turns - want).abs() < 0.05, "{turns} turns, {want} were expected");
}

#[test]
fn scale_divides_seeks_and_nothing_else() {
    let far = 1900 * 19 * 72;
    let seek = SeekCurve::HP97560.time_ps(1900);
    let times = [1, 2, 4].map(|scale| {
        let disk = disk(scale);
        disk.arm_ps(1900, 0)
    });
    assert_eq!(times, [seek, seek / 2, seek / 4]);
    let turn = MechanicalShape::hp97560().turn_ps;
    let [slow, fast] = [1, 2].map(|scale| disk(scale).serve(0, read(far, 8)));
    assert!(slow.abs_diff(fast + seek / 2) <= turn, "but for what is left of a turn");
}

#[test]
fn the_average_random_read_is_that_of_the_data_sheet() {
    // 13.5 ms of average seek, half a turn (7.5 ms), overhead 2.2 ms, 16 sectors (3.3 ms): about 26 ms.
    let mut disk = disk(1);
    let (mut state, mut now, count) = (1_u64, 0, 2000);
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        now = disk.serve(now, read((state >> 33) % (disk.sectors - 16), 16));
    }
    let average = now as f64 / f64::from(count) / MS as f64;
    assert!((25.0..28.0).contains(&average), "{average} ms");
}

#[test]
fn sequential_reads_come_from_the_buffer_at_the_speed_of_the_platter() {
    let mut disk = disk(1);
    let mut now = disk.serve(0, read(0, 16));
    let begin = now;
    for request in 1..200 {
        now = disk.serve(now, read(request * 16, 16));
    }
    let rate = (199 * 16 * SECTOR_BYTES) as f64 / ((now - begin) as f64 / 1e12) / 1e6;
    // 72 sectors in (72 + 8) / 72 of a turn: 2.2 MB/s; the overhead of each request is hidden behind the platter.
    assert!((1.9..2.3).contains(&rate), "{rate} MB/s");
    // After a pause all is there: overhead and bus alone.
    let shape = MechanicalShape::hp97560();
    let later = now + 1000 * MS;
    assert_eq!(disk.serve(later, read(200 * 16, 16)), later + shape.overhead_ps + 16 * shape.bus_sector_ps);
}

#[test]
fn the_buffer_ends_where_it_is_full() {
    let shape = MechanicalShape::hp97560();
    let mut disk = disk(1);
    let mut now = disk.serve(0, read(0, 16)) + 1000 * MS;
    // 256 sectors are there; then the platter has to turn again.
    for sector in [16, 128, 200] {
        let done = disk.serve(now, read(sector, 16));
        assert_eq!(done - now, shape.overhead_ps + 16 * shape.bus_sector_ps, "sector {sector}");
        now = done;
    }
    let done = disk.serve(now, read(272, 100));
    assert!(done - now > 80 * shape.sector_ps(), "{} ms", (done - now) / MS);
    // What was given up for it is gone.
    let done_again = disk.serve(done + 1000 * MS, read(0, 16)) - done - 1000 * MS;
    assert!(done_again > shape.overhead_ps + 16 * shape.bus_sector_ps);
}

#[test]
fn sequential_writes_lose_a_turn_each() {
    let mut disk = disk(1);
    let first = disk.serve(0, write(0, 16));
    let second = disk.serve(first, write(16, 16));
    let turn = MechanicalShape::hp97560().sector_ps() * 72;
    assert_eq!(second - first, turn + 16 * MechanicalShape::hp97560().sector_ps());
}

#[test]
fn a_write_throws_the_buffer_away() {
    let mut disk = disk(1);
    let mut now = disk.serve(0, read(0, 16));
    now = disk.serve(now + 100 * MS, write(20, 1));
    let shape = MechanicalShape::hp97560();
    let done = disk.serve(now + 100 * MS, read(16, 16));
    assert!(done - now - 100 * MS > shape.overhead_ps + 16 * shape.bus_sector_ps, "it is read from the platter");
}

//! Workload `raytrace`: threads trace rays through one scene that all only read; each takes the next tile of the image.
//!
//! Workload `shadows` lights a larger scene by the sky: from what each pixel shows, rays go in all directions, and on from
//! what they meet, until they come to the sky. They go anywhere, so caches help little; nearly all is reading.

mod grid;
mod scene;
mod vector;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::digest::Digest;
use crate::random::Random;
use crate::{Crew, Size};
use grid::{Grid, Met};
use scene::Scene;
use vector::Vector;

/// Width and height of a tile, in pixels.
const TILE: usize = 16;
/// The same for `shadows`, whose pixels are work enough: threads end together.
const SMALL_TILE: usize = 4;
/// How often a ray is mirrored.
const DEPTH: u32 = 3;
/// How far off a surface a new ray begins.
const STEP: f64 = 1e-9;

/// Runs the workload: all pixels' colours in one number.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    let scene = Scene::random(size.pick(4_000, 40_000), 3);
    let image = render(crew, &scene, size.pick((128, 96), (384, 288)));
    let mut digest = Digest::default();
    image.iter().for_each(|pixel| digest.add(u64::from(*pixel)));
    digest.value()
}

/// The result that it must have.
pub const fn expected(size: Size) -> u64 {
    size.pick(0x9932_9b1a_f4ec_f07e, 0x5b7b_8441_dd10_e3d5)
}

/// Ways of light to what each pixel of `shadows` shows.
const WAYS: u32 = 8;
/// How often light is reflected on its way, at most, and how much of it each time.
const REFLECTIONS: u32 = 6;
const ALBEDO: f64 = 0.8;

/// Workload `shadows`: all pixels' brightness in one number. Calls `loaded` when the scene is there.
pub fn run_lit(crew: &dyn Crew, size: Size, loaded: &dyn Fn()) -> u64 {
    let scene = Grid::random(size.pick(200_000, 400_000), size.pick(80, 100), 5);
    loaded();
    let image = light(crew, &scene, size.pick((384, 288), (512, 384)));
    let mut digest = Digest::default();
    image.iter().for_each(|pixel| digest.add(u64::from(*pixel)));
    digest.value()
}

/// The result that it must have.
pub const fn expected_lit(size: Size) -> u64 {
    size.pick(0x8f21_4868_682c_97d8, 0xf600_dd62_a919_d4dc)
}

fn light(crew: &dyn Crew, scene: &Grid, shape: (usize, usize)) -> Vec<u32> {
    paint(crew, shape, SMALL_TILE, &|at, shape| {
        let along = through_pixel(at, shape);
        let mut random = Random::new((at.1 * shape.0 + at.0) as u64);
        let light = match scene.nearest(Vector::ZERO, along) {
            None => sky(along),
            Some(met) => (0..WAYS).map(|_| way(scene, met, along, &mut random)).sum::<f64>() / f64::from(WAYS),
        };
        // 255 for the brightest sky.
        (light * 255.0) as u32
    })
}

/// How bright the sky is in a direction.
fn sky(along: Vector) -> f64 {
    0.6 + 0.4 * along.y
}

/// How much light comes from the sky one of many ways to what a ray from the eye has met, and on to the eye.
fn way(scene: &Grid, mut met: Met, mut along: Vector, random: &mut Random) -> f64 {
    let (mut start, mut share) = (Vector::ZERO, 1.0);
    for _ in 0..REFLECTIONS {
        let place = start + along.times(met.distance);
        let normal = (place - met.centre).times(1.0 / met.radius);
        // Off a dull surface light goes in all directions, most of it upright.
        let mut one = || 2.0 * random.unit() - 1.0;
        along = (normal + Vector::new(one(), one(), one()).unit()).unit();
        start = place + normal.times(STEP);
        share *= ALBEDO;
        met = match scene.nearest(start, along) {
            Some(met) => met,
            None => return share * sky(along),
        };
    }
    0.0
}

fn render(crew: &dyn Crew, scene: &Scene, shape: (usize, usize)) -> Vec<u32> {
    paint(crew, shape, TILE, &|at, shape| packed(trace(scene, Vector::ZERO, through_pixel(at, shape), DEPTH)))
}

/// An image of which `pixel` tells each pixel; threads take tile after tile, of `size` pixels in each direction.
fn paint(
    crew: &dyn Crew,
    (width, height): (usize, usize),
    size: usize,
    pixel: &(dyn Fn((usize, usize), (usize, usize)) -> u32 + Sync),
) -> Vec<u32> {
    let image: Vec<AtomicU32> = (0..width * height).map(|_| AtomicU32::new(0)).collect();
    let (columns, rows) = (width.div_ceil(size), height.div_ceil(size));
    let next = AtomicUsize::new(0);
    crew.each(&|_| {
        loop {
            // Relaxed: a tile's number is all that is shared, and pixels have one writer; `each` orders the end.
            let tile = next.fetch_add(1, Ordering::Relaxed);
            if tile >= columns * rows {
                return;
            }
            let (left, top) = (tile % columns * size, tile / columns * size);
            for y in top..(top + size).min(height) {
                for x in left..(left + size).min(width) {
                    image[y * width + x].store(pixel((x, y), (width, height)), Ordering::Relaxed);
                }
            }
        }
    });
    image.into_iter().map(AtomicU32::into_inner).collect()
}

/// The eye is at the origin and looks along z.
fn through_pixel((x, y): (usize, usize), (width, height): (usize, usize)) -> Vector {
    let scale = 1.0 / height as f64;
    let (x, y) = (x as f64 + 0.5 - width as f64 / 2.0, y as f64 + 0.5 - height as f64 / 2.0);
    Vector::new(x * scale, -y * scale, 1.0).unit()
}

/// The colour that is seen from `from` in direction `along`.
fn trace(scene: &Scene, from: Vector, along: Vector, depth: u32) -> Vector {
    let Some(hit) = scene.nearest(from, along) else {
        return Vector::new(0.2, 0.3, 0.5).times(0.5 + 0.5 * along.y);
    };
    let place = from + along.times(hit.distance);
    let normal = (place - hit.sphere.centre).times(1.0 / hit.sphere.radius);
    let start = place + normal.times(STEP);
    let light = Vector::new(-0.4, 0.8, -0.45).unit();
    let bright = normal.dot(light).max(0.0);
    let lit = if bright > 0.0 && !scene.is_hidden(start, light) { bright } else { 0.0 };
    let colour = hit.sphere.colour.times(0.1 + 0.9 * lit);
    if depth == 0 || hit.sphere.mirror == 0.0 {
        return colour;
    }
    let mirrored = (along - normal.times(2.0 * along.dot(normal))).unit();
    let seen = trace(scene, start, mirrored, depth - 1);
    colour.times(1.0 - hit.sphere.mirror) + seen.times(hit.sphere.mirror)
}

fn packed(colour: Vector) -> u32 {
    let byte = |value: f64| (value.clamp(0.0, 1.0) * 255.0) as u32;
    byte(colour.x) << 16 | byte(colour.y) << 8 | byte(colour.z)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::tests::HostCrew;

    #[test]
    fn results_are_the_known_ones_however_many_threads_there_are() {
        for size in [Size::Small, Size::Full] {
            assert_eq!(run(&HostCrew(3), size), expected(size), "{size:?}");
        }
        assert_eq!(run(&HostCrew(1), Size::Small), expected(Size::Small));
    }

    #[test]
    fn shadows_have_the_known_results() {
        for (size, threads) in [(Size::Small, 3), (Size::Small, 1), (Size::Full, 8)] {
            let loaded = core::cell::Cell::new(0);
            let result = run_lit(&HostCrew(threads), size, &|| loaded.set(loaded.get() + 1));
            assert_eq!((result, loaded.get()), (expected_lit(size), 1), "{size:?} {result:#x}");
        }
    }

    #[test]
    fn light_comes_by_many_ways() {
        let image = light(&HostCrew(2), &Grid::random(3000, 20, 3), (64, 48));
        let bright: std::collections::BTreeSet<u32> = image.iter().copied().collect();
        assert!(bright.len() > 50 && bright.iter().all(|bright| *bright <= 255), "{bright:?}");
    }

    #[test]
    fn the_image_shows_something() {
        let image = render(&HostCrew(2), &Scene::random(500, 3), (64, 48));
        let colours: std::collections::BTreeSet<u32> = image.into_iter().collect();
        assert!(colours.len() > 100, "{} colours", colours.len());
    }
}

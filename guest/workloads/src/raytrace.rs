//! Workload `raytrace`: threads trace rays through one scene that all only read; each takes the next tile of the image.
//!
//! Workload `shadows` lights a larger scene by the sky: from what each pixel shows, rays go in all directions. They meet
//! anything, so caches help little; nearly all is reading.

mod scene;
mod vector;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::digest::Digest;
use crate::random::Random;
use crate::{Crew, Size};
use scene::Scene;
use vector::Vector;

/// Width and height of a tile, in pixels.
const TILE: usize = 16;
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

/// Rays to the sky for each pixel of `shadows`.
const SKY: u32 = 12;

/// Workload `shadows`: all pixels' brightness in one number. Calls `loaded` when the scene is there.
pub fn run_lit(crew: &dyn Crew, size: Size, loaded: &dyn Fn()) -> u64 {
    let scene = Scene::random(size.pick(300_000, 600_000), 5);
    loaded();
    let image = paint(crew, size.pick((320, 240), (512, 384)), &|at, shape| sky(&scene, at, shape));
    let mut digest = Digest::default();
    image.iter().for_each(|pixel| digest.add(u64::from(*pixel)));
    digest.value()
}

/// The result that it must have.
pub const fn expected_lit(size: Size) -> u64 {
    size.pick(0x336f_6a0d_1b56_1df8, 0xac89_a152_939b_21da)
}

/// How many of the rays from what a pixel shows reach the sky.
fn sky(scene: &Scene, at: (usize, usize), shape: (usize, usize)) -> u32 {
    let along = through_pixel(at, shape);
    let Some(hit) = scene.nearest(Vector::ZERO, along) else { return SKY + 1 };
    let place = along.times(hit.distance);
    let normal = (place - hit.sphere.centre).times(1.0 / hit.sphere.radius);
    let start = place + normal.times(STEP);
    let mut random = Random::new((at.1 * shape.0 + at.0) as u64);
    let mut one = || 2.0 * random.unit() - 1.0;
    let directions = core::iter::repeat_with(|| Vector::new(one(), one(), one()).unit());
    let seen = |ray: Vector| !scene.is_hidden(start, if ray.dot(normal) < 0.0 { ray.times(-1.0) } else { ray });
    directions.take(SKY as usize).map(|ray| u32::from(seen(ray))).sum()
}

fn render(crew: &dyn Crew, scene: &Scene, shape: (usize, usize)) -> Vec<u32> {
    paint(crew, shape, &|at, shape| packed(trace(scene, Vector::ZERO, through_pixel(at, shape), DEPTH)))
}

/// An image of which `pixel` tells each pixel; threads take tile after tile.
fn paint(
    crew: &dyn Crew,
    (width, height): (usize, usize),
    pixel: &(dyn Fn((usize, usize), (usize, usize)) -> u32 + Sync),
) -> Vec<u32> {
    let image: Vec<AtomicU32> = (0..width * height).map(|_| AtomicU32::new(0)).collect();
    let (columns, rows) = (width.div_ceil(TILE), height.div_ceil(TILE));
    let next = AtomicUsize::new(0);
    crew.each(&|_| {
        loop {
            // Relaxed: a tile's number is all that is shared, and pixels have one writer; `each` orders the end.
            let tile = next.fetch_add(1, Ordering::Relaxed);
            if tile >= columns * rows {
                return;
            }
            let (left, top) = (tile % columns * TILE, tile / columns * TILE);
            for y in top..(top + TILE).min(height) {
                for x in left..(left + TILE).min(width) {
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
    fn the_image_shows_something() {
        let image = render(&HostCrew(2), &Scene::random(500, 3), (64, 48));
        let colours: std::collections::BTreeSet<u32> = image.into_iter().collect();
        assert!(colours.len() > 100, "{} colours", colours.len());
    }
}

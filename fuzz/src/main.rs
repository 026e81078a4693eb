//! One target under libFuzzer. Which one is chosen when this is compiled, so that the program has the instrumented code of that alone.
#![no_main]

const TARGET: fn(&[u8]) = fuzz::find(env!("MIRRORBALL_FUZZ_TARGET")).run;

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));

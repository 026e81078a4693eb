//! Hands the linker script to the bare-metal build.
fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory");
        println!("cargo::rustc-link-arg-bin=fault-probe=-T{dir}/link.ld");
        println!("cargo::rustc-link-arg-bin=fault-probe=--gc-sections");
    }
}

//! Hands the linker script to the programs of this package when they are built for a VM. A program in a package of its own has a
//! build script like this one; the script `link.ld` is all that it needs.
fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory");
        println!("cargo::rustc-link-arg-bins=-T{dir}/link.ld");
        println!("cargo::rustc-link-arg-examples=-T{dir}/link.ld");
    }
}

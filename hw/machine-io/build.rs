//! The probe is a bare image: it is linked where OpenSBI starts a kernel.

fn main() {
    println!("cargo::rerun-if-changed=examples/machine-io-probe/probe.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-examples=-T{folder}/examples/machine-io-probe/probe.ld");
    }
}

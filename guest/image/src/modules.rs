//! Kernel modules: which others a module needs, from the `depends=` line in its `.modinfo` section, so that no `depmod`
//! has to run for the initial file system.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection};

use crate::command::{output_of, tool};

/// A module unpacked for loading.
pub struct Module {
    /// Its name as the kernel spells it, with underscores.
    pub name: String,
    /// The ELF file's content, uncompressed.
    pub content: Vec<u8>,
}

/// All module files under a `lib/modules/VERSION` folder, by name.
pub struct ModuleTree {
    files: BTreeMap<String, PathBuf>,
}

impl ModuleTree {
    /// Lists the modules below `dir`.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn scan(dir: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut folders = vec![dir.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if let Some(name) = module_name(&entry.file_name().to_string_lossy()) {
                    files.insert(name, entry.path());
                }
            }
        }
        Ok(Self { files })
    }

    /// The module's file.
    pub fn file(&self, name: &str) -> Option<&Path> {
        self.files.get(&name.replace('-', "_")).map(PathBuf::as_path)
    }

    /// `wanted` and all that they need, in an order in which they can be loaded.
    ///
    /// # Errors
    /// A module that is needed is neither here nor unpackable.
    pub fn load_order(&self, wanted: &[&str]) -> Result<Vec<Module>> {
        let mut order = Vec::new();
        for name in wanted {
            self.visit(&name.replace('-', "_"), &mut order, 0)?;
        }
        Ok(order)
    }

    fn visit(&self, name: &str, order: &mut Vec<Module>, depth: usize) -> Result<()> {
        if order.iter().any(|module| module.name == name) {
            return Ok(());
        }
        ensure!(depth < 32, "kernel modules depend on each other in a circle at `{name}`");
        let file = self.file(name).with_context(|| format!("the kernel package has no module `{name}`"))?;
        let content = unpack(file)?;
        for dependency in dependencies(&content).with_context(|| format!("in {}", file.display()))? {
            self.visit(&dependency, order, depth + 1)?;
        }
        order.push(Module { name: name.to_owned(), content });
        Ok(())
    }
}

/// `virtio-rng.ko.xz` is module `virtio_rng`.
fn module_name(file: &str) -> Option<String> {
    let stem = [".ko", ".ko.xz", ".ko.gz", ".ko.zst"].iter().find_map(|suffix| file.strip_suffix(suffix))?;
    Some(stem.replace('-', "_"))
}

fn unpack(file: &Path) -> Result<Vec<u8>> {
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("gz") => "gzip",
        Some("zst") => "zstd",
        _ => return fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    let mut command = tool(program)?;
    let output = command.args(["-d", "-c"]).arg(file).output()?;
    if !output.status.success() {
        // Run it again for its message: the happy path keeps the bytes unconverted.
        output_of(tool(program)?.args(["-t"]).arg(file))?;
    }
    Ok(output.stdout)
}

/// The modules named by `depends=` in the module's `.modinfo`.
fn dependencies(elf: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(elf).context("not an ELF file")?;
    let section = file.section_by_name(".modinfo").context("no .modinfo section")?;
    Ok(depends_of(section.data()?))
}

fn depends_of(modinfo: &[u8]) -> Vec<String> {
    let values = modinfo.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(b"depends="));
    let names = values.flat_map(|list| list.split(|byte| *byte == b','));
    names.filter(|name| !name.is_empty()).map(|name| String::from_utf8_lossy(name).replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_are_read_from_modinfo() {
        let modinfo = b"license=GPL\0depends=net_failover,failover\0name=virtio_net\0depends=\0";
        assert_eq!(depends_of(modinfo), ["net_failover", "failover"]);
        assert!(depends_of(b"license=GPL\0").is_empty());
    }

    #[test]
    fn names_are_spelt_as_the_kernel_does() {
        assert_eq!(module_name("virtio-rng.ko.xz").as_deref(), Some("virtio_rng"));
        assert_eq!(module_name("ext4.ko").as_deref(), Some("ext4"));
        assert_eq!(module_name("modules.order"), None);
    }

    #[test]
    fn a_missing_module_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = ModuleTree::scan(dir.path()).unwrap().load_order(&["virtio_blk"]).err().unwrap();
        assert!(error.to_string().contains("virtio_blk"), "{error}");
    }
}

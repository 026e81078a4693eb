//! The machine file of a launched VM.

use std::path::Path;

use control::Name;
use toml_edit::{DocumentMut, Item, TableLike, Value};

use crate::args::PortMap;

/// Where the first VM of a subnet with a gateway is.
const FIRST_ADDRESS: &str = "10.0.2.15";
/// What a machine needs beyond its VM: the monitor, its tables, a cache of disk blocks.
const MONITOR_MIB: u64 = 256;

/// What a VM is made of.
#[derive(Clone, Debug)]
pub struct Shape<'a> {
    pub name: &'a Name,
    pub vcpus: u16,
    pub memory_mib: u64,
    /// The image below its disk.
    pub base: &'a Path,
    pub ports: &'a [PortMap],
    /// Its network card's address, which stays when its name changes: cloud-init has told the VM's system to know the card by it.
    pub mac: &'a str,
    /// Whether it reaches the network of this host.
    pub reaches_host: bool,
}

/// The text of the machine file, which stands in the VM's folder.
pub fn machine_file(shape: &Shape<'_>) -> String {
    let name = shape.name;
    let base = Value::from(shape.base.display().to_string());
    let forwards: Vec<String> = shape.ports.iter().map(forward).collect();
    let machine_mib = shape.memory_mib + shape.memory_mib / 8 + MONITOR_MIB;
    format!(
        "# Made by `mirrorball launch`. `mirrorball edit {name}` changes it; docs/machine-files.md explains the keys.\n\
         name = \"{name}\"\n\n\
         [[node]]\nharts = {vcpus}\nmemory_mib = {machine_mib}\n\n\
         # What the VM has written lies over the image.\n\
         [[disk]]\nname = \"root\"\nfile = \"disk.qcow2\"\nformat = \"qcow2\"\nbacking = {base}\n\
         backing_format = \"raw\"\n\n\
         # What cloud-init reads: the VM's name, its user, keys.\n\
         [[disk]]\nname = \"seed\"\nfile = \"seed.img\"\nformat = \"raw\"\nread_only = true\n\n\
         [network]\nreach = \"{reach}\"\nforward = [{forwards}]\n\n\
         [[subnet]]\nname = \"net\"\ngateway = true\n\n\
         [[vm]]\nname = \"{name}\"\nvcpus = {vcpus}\nmemory_mib = {memory_mib}\nfirmware = \"cache:u-boot/u-boot.bin\"\n\
         disk = [{{ source = \"root\", mode = \"persistent\" }}, {{ source = \"seed\", mode = \"read-only\" }}]\n\
         net = [{{ subnet = \"net\", mac = \"{mac}\" }}]\n",
        mac = shape.mac,
        vcpus = shape.vcpus,
        memory_mib = shape.memory_mib,
        reach = if shape.reaches_host { "host" } else { "nothing" },
        forwards = forwards.join(", "),
    )
}

fn forward(port: &PortMap) -> String {
    format!("{{ host = {}, guest = \"{FIRST_ADDRESS}:{}\" }}", port.host, port.guest)
}

/// The ports that a machine file forwards.
///
/// # Errors
/// It is no TOML.
pub fn ports(text: &str) -> Result<Vec<PortMap>, toml_edit::TomlError> {
    let document: DocumentMut = text.parse()?;
    let forward = document.get("network").and_then(|network| network.get("forward"));
    let inline = forward.and_then(Item::as_array).into_iter().flatten().filter_map(Value::as_inline_table);
    let inline = inline.map(|table| table as &dyn TableLike);
    let tables = forward.and_then(Item::as_array_of_tables).into_iter().flatten().map(|table| table as &dyn TableLike);
    Ok(inline.chain(tables).filter_map(port).collect())
}

fn port(forward: &dyn TableLike) -> Option<PortMap> {
    let host = u16::try_from(forward.get("host")?.as_integer()?).ok()?;
    let guest = forward.get("guest")?.as_str()?.rsplit_once(':')?.1.parse().ok()?;
    Some(PortMap { host, guest })
}

/// The same machine file with another name of the machine, and of the VM that was named like it. All else stays as its user wrote it.
///
/// # Errors
/// It is no TOML.
pub fn renamed(text: &str, from: &Name, to: &Name) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let vms = document.get_mut("vm").and_then(Item::as_array_of_tables_mut);
    for vm in vms.into_iter().flat_map(toml_edit::ArrayOfTables::iter_mut) {
        if vm.get("name").and_then(Item::as_str) == Some(from.as_str()) {
            vm["name"] = toml_edit::value(to.as_str());
        }
    }
    document["name"] = toml_edit::value(to.as_str());
    let comment = format!("mirrorball edit {from}`");
    Ok(document.to_string().replace(&comment, &format!("mirrorball edit {to}`")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use config::{Loader, Reach};
    use images::overlay;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn the_machine_file_is_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().join("a \"quoted\" name.img");
        fs::write(&base, vec![0; 1 << 20]).expect("it can be written");
        overlay(&dir.path().join("disk.qcow2"), &base, 2 << 20).expect("it can be made");
        fs::write(dir.path().join("seed.img"), vec![0; 1 << 20]).expect("it can be written");
        fs::create_dir(dir.path().join("u-boot")).expect("it can be made");
        fs::write(dir.path().join("u-boot/u-boot.bin"), vec![0; 4096]).expect("it can be written");
        let ports = [PortMap { host: 2222, guest: 22 }, PortMap { host: 8080, guest: 80 }];
        let vm = name("web");
        for (memory_mib, vcpus, reaches_host) in [(256, 1, false), (1024, 2, true), (8192, 16, false)] {
            let shape = Shape {
                name: &vm,
                vcpus,
                memory_mib,
                base: &base,
                ports: &ports,
                mac: "52:54:00:12:34:56",
                reaches_host,
            };
            let text = machine_file(&shape);
            let loader = Loader { cache: Some(dir.path().into()), check_files: true, is_restricted: false };
            let plan = loader.load_text(&dir.path().join("machine.toml"), text.clone());
            let plan = plan.unwrap_or_else(|error| panic!("{:?}\n{text}", error.problems));
            assert_eq!(plan.name.as_str(), "web");
            let uplink = plan.hardware.uplink.expect("it has a network card");
            assert_eq!(uplink.forwards.len(), 2);
            assert_eq!(uplink.reach == Reach::Host, reaches_host);
            assert_eq!(super::ports(&text).expect("TOML"), ports);
        }
    }

    #[test]
    fn a_new_name_leaves_the_rest() {
        let text = "# mine\nname = \"web\" # here\n[[vm]]\nname = \"web\"\nmemory_mib = 3\n[[vm]]\nname = \"other\"\n";
        let new = renamed(text, &name("web"), &name("shop")).expect("TOML");
        assert!(new.starts_with("# mine\nname = \"shop\""), "{new}");
        assert!(new.contains("name = \"shop\"\nmemory_mib = 3") && new.contains("\"other\""), "{new}");
    }
}

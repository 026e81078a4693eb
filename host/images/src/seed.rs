//! The seed of a VM: cloud-init's `NoCloud` source, a FAT volume with the label `CIDATA`.
//!
//! Its files are YAML for their reader. They are written as JSON, which is YAML, too, and has one way to quote whatever a user says.

use std::io;

use efi_disk::fat;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Who a VM is, and who may come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    /// A new one makes cloud-init begin anew.
    pub instance: String,
    /// The host name.
    pub hostname: String,
    /// The user that is made, with `sudo` and without a password.
    pub user: String,
    /// Public keys that open its door.
    pub authorized_keys: Vec<String>,
    /// The VM's own key, so that the first one who calls knows whom.
    pub host_key: Option<HostKey>,
    /// Packages that are installed at the first boot.
    pub packages: Vec<String>,
}

/// An Ed25519 key pair of OpenSSH.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKey {
    /// The private key's file.
    pub private: String,
    /// The public key's line.
    pub public: String,
}

impl Seed {
    /// The volume.
    ///
    /// # Errors
    /// It does not fit: somebody gave megabytes of keys.
    pub fn volume(&self) -> io::Result<Vec<u8>> {
        let (user_data, meta_data) = (self.user_data(), self.meta_data());
        let files: [(&str, &[u8]); 2] = [("user-data", user_data.as_bytes()), ("meta-data", meta_data.as_bytes())];
        fat::volume(fat::SMALL_BYTES, "CIDATA", &files)
    }

    fn user_data(&self) -> String {
        let mut data = json!({
            "preserve_hostname": false,
            "disable_root": true,
            "ssh_pwauth": false,
            "users": [{
                "name": self.user,
                "gecos": "made by mirrorball launch",
                "shell": "/bin/bash",
                "lock_passwd": true,
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "ssh_authorized_keys": self.authorized_keys,
            }],
            // Other kinds take minutes on an emulated machine, and nobody asks for them.
            "ssh_genkeytypes": ["ed25519"],
            "growpart": { "mode": "auto", "devices": ["/"] },
        });
        if let Some(key) = &self.host_key {
            data["ssh_deletekeys"] = Value::Bool(true);
            data["ssh_keys"] = json!({ "ed25519_private": key.private, "ed25519_public": key.public });
        }
        if !self.packages.is_empty() {
            data["package_update"] = Value::Bool(true);
            data["packages"] = json!(self.packages);
        }
        format!("#cloud-config\n{data:#}\n")
    }

    fn meta_data(&self) -> String {
        format!("{:#}\n", json!({ "instance-id": self.instance, "local-hostname": self.hostname }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Seed {
        Seed {
            instance: "i-1".into(),
            hostname: "web".into(),
            user: "me".into(),
            authorized_keys: vec!["ssh-ed25519 AAAA \"me\"\nrunc: [evil]".into()],
            host_key: Some(HostKey { private: "secret\n".into(), public: "open".into() }),
            packages: vec!["jq".into()],
        }
    }

    #[test]
    fn what_users_say_stays_what_they_said() {
        let text = seed().user_data();
        let json = text.strip_prefix("#cloud-config\n").expect("cloud-init looks for it");
        let data: Value = serde_json::from_str(json).expect("it is JSON");
        assert_eq!(data["users"][0]["ssh_authorized_keys"][0], seed().authorized_keys[0].as_str());
        assert_eq!(data["ssh_keys"]["ed25519_private"], "secret\n");
        assert_eq!(data["packages"], json!(["jq"]));
        assert_eq!(data.get("runc"), None);
        let plain = Seed { packages: Vec::new(), host_key: None, ..seed() }.user_data();
        assert!(!plain.contains("package") && !plain.contains("ssh_keys"));
    }

    #[test]
    fn the_volume_has_the_label_that_cloud_init_looks_for() {
        let volume = seed().volume().expect("it fits");
        for part in [b"CIDATA".as_slice(), b"#cloud-config", b"local-hostname"] {
            assert!(volume.windows(part.len()).any(|window| window == part));
        }
    }
}

//! Machine and VM descriptions in TOML.

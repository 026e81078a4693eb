//! A recipe: everything that decides what a built artifact contains, reduced to one short key.

use std::fmt;

use sha2::{Digest, Sha256};

/// Collects the ingredients of an artifact. Two recipes with the same ingredients in the same order have the same key.
pub struct Recipe {
    kind: &'static str,
    hasher: Sha256,
}

impl Recipe {
    /// Starts the recipe of one kind of artifact; the kind is also the stem of its folder's name.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, hasher: Sha256::new() }.with("kind", kind)
    }

    /// Adds an ingredient. Lengths are hashed too, so that neighbouring texts cannot be confused.
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), value.as_ref()] {
            self.hasher.update((part.len() as u64).to_le_bytes());
            self.hasher.update(part);
        }
        self
    }

    /// Adds a list of words as one ingredient.
    pub fn with_list(self, name: &str, values: &[&str]) -> Self {
        let count = values.len().to_string();
        values.iter().fold(self.with(name, count), |recipe, value| recipe.with(name, value))
    }

    /// The finished key.
    pub fn key(self) -> RecipeKey {
        let digest = self.hasher.finalize();
        let hash = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        RecipeKey { kind: self.kind, hash }
    }
}

/// Names one built artifact in the cache: its kind and the hash of its recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeKey {
    kind: &'static str,
    hash: String,
}

impl RecipeKey {
    /// The kind of artifact.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether a folder's name is that of some recipe of this kind, this one or an older one.
    pub fn is_sibling(&self, folder: &str) -> bool {
        let hash = folder.strip_prefix(self.kind).and_then(|rest| rest.strip_prefix('-'));
        hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }
}

impl fmt::Display for RecipeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kind, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(values: &[&str]) -> RecipeKey {
        Recipe::new("root").with_list("packages", values).key()
    }

    #[test]
    fn equal_ingredients_give_equal_keys() {
        assert_eq!(key(&["gcc", "make"]), key(&["gcc", "make"]));
    }

    #[test]
    fn order_and_boundaries_count() {
        assert_ne!(key(&["gcc", "make"]), key(&["make", "gcc"]));
        assert_ne!(key(&["gcc", "make"]), key(&["gccmake"]));
        assert_ne!(Recipe::new("a").with("x", "yz").key().hash, Recipe::new("a").with("xy", "z").key().hash);
    }

    #[test]
    fn siblings_are_other_recipes_of_the_same_kind() {
        let key = key(&["gcc"]);
        assert!(key.is_sibling(&key.to_string()));
        assert!(key.is_sibling("root-0123456789abcdef"));
        assert!(!key.is_sibling("root"));
        assert!(!key.is_sibling("rootfs-0123456789abcdef"));
    }
}

//! Nodes and properties in few words.

use alloc::string::String;
use dtoolkit::{
    ToPropertyValue,
    model::{DeviceTreeNode, DeviceTreeProperty},
};

/// A node under construction. Names are ours or checked, so the unchecked constructors are right.
pub(super) struct NodeWriter(DeviceTreeNode);

impl NodeWriter {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self(DeviceTreeNode::new_unchecked(name))
    }

    /// A property with any value.
    pub(super) fn with(mut self, name: &str, value: impl ToPropertyValue) -> Self {
        self.0.add_property(DeviceTreeProperty::new_unchecked(name, value));
        self
    }

    /// A property without a value: true by being there.
    pub(super) fn flag(self, name: &str) -> Self {
        self.with(name, [0_u8; 0])
    }

    /// One 32-bit cell; spares literals their suffix.
    pub(super) fn cell(self, name: &str, cell: u32) -> Self {
        self.with(name, cell)
    }

    /// `reg` with one area, two cells each.
    pub(super) fn reg(self, base: u64, size: u64) -> Self {
        self.with("reg", [base.to_be_bytes(), size.to_be_bytes()].concat())
    }

    pub(super) fn child(mut self, child: Self) -> Self {
        self.0.add_child(child.0);
        self
    }

    pub(super) fn children(self, children: impl IntoIterator<Item = Self>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    pub(super) fn finish(self) -> DeviceTreeNode {
        self.0
    }
}

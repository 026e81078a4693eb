//! A flat index over the blob: parent links, phandles, and typed reads that say where they failed.
//!
//! `dtoolkit` parses and validates; this module adds what reading a *machine* needs: walking up (bus translation,
//! inherited interrupt parents) and errors that name node and property.

use alloc::{borrow::ToOwned, string::String, vec::Vec};
use core::ops::Range;

use dtoolkit::{
    Node as _, Property as _,
    fdt::{Fdt, FdtNode, FdtProperty},
};

use crate::{
    cells::Cells,
    error::{Problem, TreeError},
};

/// Deepest nesting that is followed. Real trees need fewer than ten.
const MAX_DEPTH: usize = 32;

/// The index: nodes in document order, so that a parent precedes its children.
pub(crate) struct Tree<'a> {
    nodes: Vec<Record<'a>>,
    properties: Vec<FdtProperty<'a>>,
    /// (phandle, node), sorted.
    phandles: Vec<(u32, usize)>,
}

struct Record<'a> {
    node: FdtNode<'a>,
    parent: Option<usize>,
    properties: Range<usize>,
}

impl<'a> Tree<'a> {
    pub(crate) fn index(fdt: Fdt<'a>) -> Result<Self, TreeError> {
        let mut tree = Self { nodes: Vec::new(), properties: Vec::new(), phandles: Vec::new() };
        let root = fdt.root();
        let mut open = alloc::vec![(tree.push(root, None), root.children())];
        while let Some((parent, children)) = open.last_mut() {
            let Some(child) = children.next() else {
                open.pop();
                continue;
            };
            let index = tree.push(child, Some(*parent));
            if open.len() >= MAX_DEPTH {
                return Err(tree.node(index).error("", Problem::TooDeep { limit: MAX_DEPTH }));
            }
            open.push((index, child.children()));
        }
        tree.collect_phandles()?;
        Ok(tree)
    }

    fn push(&mut self, node: FdtNode<'a>, parent: Option<usize>) -> usize {
        let start = self.properties.len();
        self.properties.extend(node.properties());
        self.nodes.push(Record { node, parent, properties: start..self.properties.len() });
        self.nodes.len() - 1
    }

    fn collect_phandles(&mut self) -> Result<(), TreeError> {
        let mut phandles = Vec::new();
        for node in self.nodes() {
            if let Some(phandle) = node.u32("phandle")? {
                phandles.push((phandle, node.index));
            }
        }
        order::ascending(&mut phandles);
        let twins = phandles.iter().zip(phandles.iter().skip(1)).find(|((a, _), (b, _))| a == b);
        if let Some((&(value, _), &(_, index))) = twins {
            return Err(self.node(index).error("phandle", Problem::Duplicate { value: u64::from(value) }));
        }
        self.phandles = phandles;
        Ok(())
    }

    fn node(&self, index: usize) -> TreeNode<'_, 'a> {
        TreeNode { tree: self, index }
    }

    pub(crate) fn root(&self) -> TreeNode<'_, 'a> {
        self.node(0)
    }

    /// Every node, parents first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = TreeNode<'_, 'a>> {
        (0..self.nodes.len()).map(|index| self.node(index))
    }

    /// Every node that is in use and compatible with one of `names`.
    pub(crate) fn compatible<'t>(&'t self, names: &'t [&str]) -> impl Iterator<Item = TreeNode<'t, 'a>> {
        self.nodes().filter(|node| node.is_compatible(names) && node.is_enabled())
    }

    /// The node at an absolute path, unit addresses optional.
    pub(crate) fn at(&self, path: &str) -> Option<TreeNode<'_, 'a>> {
        let rest = path.strip_prefix('/')?;
        let mut node = self.root();
        for name in rest.split('/').filter(|name| !name.is_empty()) {
            node = node.children().find(|child| child.is_named(name))?;
        }
        Some(node)
    }

    pub(crate) fn by_phandle(&self, phandle: u32) -> Option<TreeNode<'_, 'a>> {
        let found = self.phandles.binary_search_by_key(&phandle, |entry| entry.0).ok()?;
        self.phandles.get(found).map(|&(_, index)| self.node(index))
    }
}

/// One node of the index.
#[derive(Clone, Copy)]
pub(crate) struct TreeNode<'t, 'a> {
    pub(crate) tree: &'t Tree<'a>,
    pub(crate) index: usize,
}

impl<'t, 'a> TreeNode<'t, 'a> {
    fn record(&self) -> &'t Record<'a> {
        &self.tree.nodes[self.index]
    }

    pub(crate) fn name(&self) -> &'t str {
        self.record().node.name()
    }

    /// Whether the last step of a path means this node. Without a unit address any address will do.
    fn is_named(&self, name: &str) -> bool {
        self.name() == name || (!name.contains('@') && self.name().split('@').next() == Some(name))
    }

    pub(crate) fn parent(&self) -> Option<TreeNode<'t, 'a>> {
        self.record().parent.map(|index| self.tree.node(index))
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = TreeNode<'t, 'a>> + use<'t, 'a> {
        let (tree, parent) = (self.tree, self.index);
        // Document order: the children of a node follow it.
        (parent + 1..tree.nodes.len())
            .map(|index| tree.node(index))
            .filter(move |node| node.record().parent == Some(parent))
    }

    /// The absolute path.
    pub(crate) fn path(&self) -> String {
        match self.parent() {
            None => "/".to_owned(),
            Some(parent) if parent.index == 0 => alloc::format!("/{}", self.name()),
            Some(parent) => alloc::format!("{}/{}", parent.path(), self.name()),
        }
    }

    pub(crate) fn error(&self, property: &str, problem: Problem) -> TreeError {
        TreeError { node: self.path(), property: property.to_owned(), problem }
    }

    /// The raw value of a property.
    pub(crate) fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        let range = self.record().properties.clone();
        let property = self.tree.properties.get(range)?.iter().find(|property| property.name() == name)?;
        property.value_as::<&'a [u8]>().ok()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.bytes(name).is_some()
    }

    pub(crate) fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, TreeError> {
        value.ok_or_else(|| self.error(name, Problem::Missing))
    }

    /// A one-cell number.
    pub(crate) fn u32(&self, name: &str) -> Result<Option<u32>, TreeError> {
        let Some(bytes) = self.bytes(name) else { return Ok(None) };
        match bytes.try_into() {
            Ok(cell) => Ok(Some(u32::from_be_bytes(cell))),
            Err(_) => Err(self.error(name, Problem::WrongLength { got: bytes.len(), unit: 4 })),
        }
    }

    /// A one- or two-cell number.
    pub(crate) fn u64(&self, name: &str) -> Result<Option<u64>, TreeError> {
        let Some(bytes) = self.bytes(name) else { return Ok(None) };
        match bytes.len() {
            4 | 8 => Ok(Cells::new(bytes).number(if bytes.len() == 4 { 1 } else { 2 })),
            got => Err(self.error(name, Problem::WrongLength { got, unit: 4 })),
        }
    }

    /// A list of cells.
    pub(crate) fn cells(&self, name: &str) -> Result<Option<Cells<'a>>, TreeError> {
        match self.bytes(name) {
            Some(bytes) if bytes.len() % 4 != 0 => {
                Err(self.error(name, Problem::WrongLength { got: bytes.len(), unit: 4 }))
            }
            bytes => Ok(bytes.map(Cells::new)),
        }
    }

    /// The error for a list that ended inside an entry of `cells` cells.
    pub(crate) fn cut_short(&self, name: &str, cells: u32) -> TreeError {
        let got = self.bytes(name).map_or(0, <[u8]>::len);
        self.error(
            name,
            Problem::WrongLength { got, unit: usize::try_from(cells).unwrap_or(usize::MAX).saturating_mul(4) },
        )
    }

    /// A property that is one text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, TreeError> {
        let Some(bytes) = self.bytes(name) else { return Ok(None) };
        let text = bytes.strip_suffix(&[0]).and_then(|body| core::str::from_utf8(body).ok());
        text.map(Some).ok_or_else(|| self.error(name, Problem::NotText))
    }

    /// A property that is a list of texts; what is not text is left out.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let bytes = self.bytes(name).unwrap_or_default();
        bytes
            .split(|&byte| byte == 0)
            .filter(|part| !part.is_empty())
            .filter_map(|part| core::str::from_utf8(part).ok())
    }

    pub(crate) fn is_compatible(&self, names: &[&str]) -> bool {
        self.texts("compatible").any(|found| names.contains(&found))
    }

    /// In use: `status` absent, "okay" or "ok", here and in every node above.
    pub(crate) fn is_enabled(&self) -> bool {
        let own = matches!(self.bytes("status"), None | Some(b"okay\0" | b"ok\0" | b"okay" | b"ok"));
        own && self.parent().is_none_or(|parent| parent.is_enabled())
    }
}

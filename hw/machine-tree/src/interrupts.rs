//! From a device's interrupt properties to a source of a controller.

use crate::{
    controllers::{Controller, InterruptControllers},
    error::{Problem, TreeError},
    tree::TreeNode,
};

/// How a source signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// On a rising edge.
    EdgeRising,
    /// On a falling edge.
    EdgeFalling,
    /// While high; also when the tree does not say.
    LevelHigh,
    /// While low.
    LevelLow,
}

impl Trigger {
    /// From the second cell of an APLIC interrupt specifier.
    const fn from_flags(flags: u32) -> Self {
        match flags & 0xf {
            1 => Self::EdgeRising,
            2 => Self::EdgeFalling,
            8 => Self::LevelLow,
            _ => Self::LevelHigh,
        }
    }
}

/// A wired interrupt: which controller, which of its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterruptSource {
    /// The controller.
    pub controller: Controller,
    /// Its source number, 1 and up.
    pub number: u32,
    /// How it signals.
    pub trigger: Trigger,
}

impl TreeNode<'_, '_> {
    /// The first interrupt of a device; `None` if it has none or it goes to a controller that is not ours.
    pub(crate) fn interrupt(&self, controllers: &InterruptControllers) -> Result<Option<InterruptSource>, TreeError> {
        if let Some(mut cells) = self.cells("interrupts-extended")? {
            let Some(phandle) = cells.cell() else { return Ok(None) };
            let name = "interrupts-extended";
            return self.specifier(controllers, name, phandle, &mut || cells.cell());
        }
        let Some(mut cells) = self.cells("interrupts")? else { return Ok(None) };
        match self.interrupt_parent()? {
            Some(phandle) => self.specifier(controllers, "interrupts", phandle, &mut || cells.cell()),
            None => Err(self.error("interrupt-parent", Problem::Missing)),
        }
    }

    /// Reads one specifier in the format of the controller `phandle`.
    pub(crate) fn specifier(
        &self,
        controllers: &InterruptControllers,
        property: &str,
        phandle: u32,
        next: &mut dyn FnMut() -> Option<u32>,
    ) -> Result<Option<InterruptSource>, TreeError> {
        let parent = self.tree.by_phandle(phandle);
        let parent = parent.ok_or_else(|| self.error(property, Problem::UnknownPhandle { phandle }))?;
        let width = parent.cell_count("#interrupt-cells", 1)?;
        let mut cells = [0; 3];
        for cell in cells.iter_mut().take(width as usize) {
            *cell = next().ok_or_else(|| self.cut_short(property, width))?;
        }
        let Some(controller) = controllers.by_phandle(phandle) else { return Ok(None) };
        let number = cells[0];
        if number == 0 || number > controllers.num_sources(controller) {
            return Err(self.error(property, Problem::OutOfRange { value: u64::from(number) }));
        }
        let trigger = if width >= 2 { Trigger::from_flags(cells[1]) } else { Trigger::LevelHigh };
        Ok(Some(InterruptSource { controller, number, trigger }))
    }

    /// `interrupt-parent`, inherited from the nodes above.
    fn interrupt_parent(&self) -> Result<Option<u32>, TreeError> {
        match (self.u32("interrupt-parent")?, self.parent()) {
            (None, Some(parent)) => parent.interrupt_parent(),
            (phandle, _) => Ok(phandle),
        }
    }
}

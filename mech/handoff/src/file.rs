//! Where a vCPU's interrupt file is.

/// A vCPU's messages: in a file of the hardware at `P`, while it has one, else in software, `S`. The lock around it orders senders against
/// moves. A guest's own stores into the hardware's file have to be kept out before it [moves](FilePlace::evacuate).
#[derive(Debug, Default)]
pub struct FilePlace<P, S> {
    hardware: Option<P>,
    software: S,
}

impl<P: Copy, S> FilePlace<P, S> {
    /// In software.
    #[must_use]
    pub const fn new(software: S) -> Self {
        Self { hardware: None, software }
    }

    /// What it holds while the hardware has no file for it; empty while it has.
    #[must_use]
    pub const fn software(&self) -> &S {
        &self.software
    }

    /// The same.
    pub const fn software_mut(&mut self) -> &mut S {
        &mut self.software
    }

    /// Sends a message to where it is. `true`: to software, so that the owner has to look at it.
    pub fn send(&mut self, to_hardware: impl FnOnce(P), to_software: impl FnOnce(&mut S)) -> bool {
        match self.hardware {
            Some(place) => {
                to_hardware(place);
                false
            }
            None => {
                to_software(&mut self.software);
                true
            }
        }
    }

    /// Moves to `place`, which `fill` gives what software holds; `empty` stays there, so that nothing interrupts from here, too.
    pub fn settle(&mut self, place: P, empty: S, fill: impl FnOnce(&S)) {
        fill(&self.software);
        self.software = empty;
        self.hardware = Some(place);
    }

    /// Moves to software, with what `take` takes out of the hardware's file.
    pub fn evacuate(&mut self, take: impl FnOnce() -> S) {
        self.software = take();
        self.hardware = None;
    }
}

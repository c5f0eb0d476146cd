//! What a transaction notes, by savepoint: what was noted under one that is rolled back is forgotten.

/// Notes that can be joined with those of a savepoint that was released.
pub trait Notes: Default {
    fn absorb(&mut self, later: Self);
}

/// One layer for each savepoint level at which something was noted, the outermost first.
pub struct Layers<N>(Vec<(i32, N)>);

impl<N> Default for Layers<N> {
    fn default() -> Self {
        Layers(Vec::new())
    }
}

impl<N: Notes> Layers<N> {
    /// Where notes of this level go.
    pub fn at(&mut self, level: i32) -> &mut N {
        if self.0.last().is_none_or(|&(top, _)| top < level) {
            self.0.push((level, N::default()));
        }
        let top = self.0.len() - 1;
        &mut self.0[top].1
    }

    /// The savepoint of this level was released.
    pub fn release(&mut self, level: i32) {
        while self.0.last().is_some_and(|&(top, _)| top >= level) {
            let Some((_, notes)) = self.0.pop() else {
                return;
            };
            self.at(level - 1).absorb(notes);
        }
    }

    /// The savepoint of this level was rolled back.
    pub fn roll_back(&mut self, level: i32) {
        self.0.retain(|&(noted, _)| noted < level);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All notes as one.
    pub fn into_one(self) -> N {
        let mut all = N::default();
        for (_, notes) in self.0 {
            all.absorb(notes);
        }
        all
    }

    /// All notes, the outermost layer first.
    pub fn iter(&self) -> impl Iterator<Item = &N> {
        self.0.iter().map(|(_, notes)| notes)
    }
}

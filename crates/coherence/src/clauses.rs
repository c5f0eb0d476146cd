//! The clauses of a model by their names, and the set of those that it leaves out: alike in every model here.

/// Makes the enum `Clause`, and `Dropped`, a set of its values.
macro_rules! clauses {
    ($($(#[$doc:meta])* $clause:ident,)*) => {
        /// What a model can leave out.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Clause {
            $($(#[$doc])* $clause,)*
        }

        impl Clause {
            pub const ALL: &[Clause] = &[$(Clause::$clause,)*];
        }

        /// The clauses that a model leaves out.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Dropped(u64);

        impl Dropped {
            pub fn with(self, clause: Clause) -> Self {
                Dropped(self.0 | 1 << clause as u8)
            }

            pub fn contains(self, clause: Clause) -> bool {
                self.0 & (1 << clause as u8) != 0
            }
        }
    };
}

pub(crate) use clauses;

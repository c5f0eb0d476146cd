//! A macro that gives each model its clauses, the named checks and steps of its protocol, and a set of the clauses that
//! a model leaves out.

/// Defines the enum `Clause`, and `Dropped`, the set of clauses that a model keeps in its field `dropped`.
macro_rules! clauses {
    ($model:ident: $($(#[$doc:meta])* $clause:ident,)*) => {
        /// A check or step of the protocol that a model can leave out.
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
            pub fn contains(self, clause: Clause) -> bool {
                self.0 & (1 << clause as u8) != 0
            }
        }

        impl $model {
            pub fn without(mut self, clause: Clause) -> Self {
                self.dropped.0 |= 1 << clause as u8;
                self
            }

            pub fn keeps(&self, clause: Clause) -> bool {
                !self.dropped.contains(clause)
            }
        }
    };
}

pub(crate) use clauses;

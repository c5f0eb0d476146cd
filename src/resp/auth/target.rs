//! What a command acts on: a cache, and what the connection's role may do with it.

use std::rc::Rc;

use crate::cache::catalog::registry::{Cache, Storage};
use crate::pg::catalog::privilege::Privileges;

/// The role's privileges on the cache's relation. Which function needs which is as by SQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    pub select: bool,
    pub insert: bool,
    pub update: bool,
    pub delete: bool,
    pub truncate: bool,
}

impl Rights {
    /// To look at entries.
    pub const READ: Rights = Rights {
        select: true,
        ..Rights::NONE
    };
    /// To set them, or to change what they say.
    pub const WRITE: Rights = Rights {
        select: true,
        insert: true,
        update: true,
        ..Rights::NONE
    };
    /// To remove them without a look at them.
    pub const DELETE: Rights = Rights {
        delete: true,
        ..Rights::NONE
    };
    /// To remove what was looked at.
    pub const TAKE: Rights = Rights {
        select: true,
        delete: true,
        ..Rights::NONE
    };
    /// To set entries and to remove others.
    pub const MOVE: Rights = Rights {
        truncate: false,
        ..Rights::ALL
    };
    /// To remove all of them.
    pub const CLEAR: Rights = Rights {
        truncate: true,
        ..Rights::NONE
    };
    pub const NONE: Rights = Rights {
        select: false,
        insert: false,
        update: false,
        delete: false,
        truncate: false,
    };
    pub const ALL: Rights = Rights {
        select: true,
        insert: true,
        update: true,
        delete: true,
        truncate: true,
    };

    /// As the catalogs have them.
    pub fn of(granted: Privileges) -> Rights {
        Rights {
            select: granted.has(Privileges::SELECT),
            insert: granted.has(Privileges::INSERT),
            update: granted.has(Privileges::UPDATE),
            delete: granted.has(Privileges::DELETE),
            truncate: granted.has(Privileges::TRUNCATE),
        }
    }

    /// The same the other way round.
    pub fn privileges(self) -> Privileges {
        let all = [
            (self.select, Privileges::SELECT),
            (self.insert, Privileges::INSERT),
            (self.update, Privileges::UPDATE),
            (self.delete, Privileges::DELETE),
            (self.truncate, Privileges::TRUNCATE),
        ];
        let granted = all.into_iter().filter(|&(has, _)| has);
        granted.fold(Privileges::NONE, |some, (_, one)| some.and(one))
    }

    /// Whether all that is needed is here.
    #[inline]
    pub fn has(self, needed: Rights) -> bool {
        let covered = |has: bool, needed: bool| has || !needed;
        covered(self.select, needed.select)
            && covered(self.insert, needed.insert)
            && covered(self.update, needed.update)
            && covered(self.delete, needed.delete)
            && covered(self.truncate, needed.truncate)
    }
}

/// A cache, and a role's rights on it.
#[derive(Clone)]
pub struct Target {
    pub cache: Rc<Cache>,
    pub rights: Rights,
}

impl Target {
    /// Whether its entries are a table's, and copies of some of them in the tier.
    #[inline]
    pub fn is_table(&self) -> bool {
        self.cache.storage != Storage::Memory
    }
}

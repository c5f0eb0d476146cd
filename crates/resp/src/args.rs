//! The arguments of a request, as positions in the client's buffer, so that no argument is copied.

use crate::number::Digits;

/// The start and the end of an argument in its buffer. 32 bits suffice, because `Limits` keeps requests below 2 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// The arguments of a request, beginning with the command name, or a part of them.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [Place],
}

impl<'a> Args<'a> {
    pub(crate) fn new(bytes: &'a [u8], places: &'a [Place]) -> Self {
        Self { bytes, places }
    }

    pub(crate) fn places(&self) -> &'a [Place] {
        self.places
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let place = self.places.get(index)?;
        self.bytes.get(place.from as usize..place.to as usize)
    }

    /// Returns argument `index`, or an empty argument after the last. Meant for arguments that the command's arity
    /// guarantees.
    pub(crate) fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// Returns the arguments from `index` on.
    pub fn from(&self, index: usize) -> Self {
        Self {
            bytes: self.bytes,
            places: self.places.get(index..).unwrap_or_default(),
        }
    }

    /// Returns the first `count` arguments.
    pub fn first(&self, count: usize) -> Self {
        Self {
            bytes: self.bytes,
            places: self.places.get(..count).unwrap_or(self.places),
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.places.iter().map(move |place| {
            bytes
                .get(place.from as usize..place.to as usize)
                .unwrap_or_default()
        })
    }

    /// Appends the request in the form that client libraries send: an array of bulk strings.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let header = |kind: u8, number: usize, to: &mut Vec<u8>| {
            to.push(kind);
            to.extend_from_slice(Digits::new().of(number as i64));
            to.extend_from_slice(b"\r\n");
        };
        header(b'*', self.len(), to);
        for argument in self.iter() {
            header(b'$', argument.len(), to);
            to.extend_from_slice(argument);
            to.extend_from_slice(b"\r\n");
        }
    }

    /// Returns the arguments in pairs, such as the keys and values of MSET.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let all = *self;
        (0..self.len() / 2).map(move |pair| (all.at(2 * pair), all.at(2 * pair + 1)))
    }
}

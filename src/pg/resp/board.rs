//! The board: who the clients of the Redis protocol are, and what was counted, for everybody to see.
//!
//! What it is not: nothing is decided by it but who is to be ended. A place belongs to the front that
//! has claimed it, which alone writes it, without a lock: its number is odd meanwhile, and who reads
//! begins again when it has changed. No key and no value comes here.
//!
//! A front that ends leaves places and figures: its successor, which has the same number, gives the
//! places back and goes on counting from the figures.

mod fronts;

use std::array;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, fence};

use pgrx::pg_sys::Oid;

use super::area;
use super::queue::MOST_PROCESSES;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::worker::background;

/// How often who reads a place that is being written begins again, before it is passed over.
const TRIES: usize = 1000;

/// What is counted: one number each for every front. New ones come at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Figure {
    /// Connections that were taken, and that were turned away.
    Connections,
    Rejected,
    Commands,
    /// Turns of clients in which commands ran.
    Batches,
    Hits,
    Misses,
    Input,
    Output,
    FailedAuthentications,
    /// Clients that were cut off, as they did not read.
    CutOff,
    /// Clients that were ended by others.
    Killed,
    /// Questions to backs, and how often there was no place for one.
    Questions,
    QueueFull,
    /// Messages from SQL, and how often the ring went round before the front had read it.
    Messages,
    Overflows,
    /// Connections whose TLS did not come about.
    FailedHandshakes,
}

/// How many there are.
pub const FIGURES: usize = Figure::FailedHandshakes as usize + 1;

/// What was counted, by [`Figure`].
pub type Figures = [u64; FIGURES];

/// What is not counted up, but there.
pub struct Now {
    pub clients: u64,
    /// Clients that are told of changes, and keys whose changes they are told of.
    pub tracking: u64,
    pub tracked_keys: u64,
    /// The most commands that ran in one turn of a client.
    pub largest_batch: u64,
}

/// What is known of a client; texts that are too long are cut.
#[derive(Clone, Default)]
pub struct Shown<T = Vec<u8>> {
    pub id: u64,
    /// 0: it has not said who it is.
    pub role: u32,
    pub is_superuser: bool,
    pub database: u32,
    pub protocol: u8,
    pub in_transaction: bool,
    pub connected: Timestamp,
    pub last_heard: Timestamp,
    pub commands: u64,
    /// Bytes of requests and of replies that wait.
    pub input: u32,
    pub output: u32,
    /// Channels and patterns that it has subscribed to.
    pub channels: u32,
    pub patterns: u32,
    /// Keys that it watches, and bytes of the commands of its transaction.
    pub watched: u32,
    pub collected: u32,
    /// Flags of CLIENT LIST that are not told by the others.
    pub no_evict: bool,
    /// It is told of changes; of all keys with certain beginnings; whom it is told instead of is gone.
    pub tracks: bool,
    pub broadcasts: bool,
    pub redirect_broken: bool,
    /// The client that is told instead of it; 0: none.
    pub redirect: u64,
    pub last_command: T,
    pub user: T,
    pub name: T,
    pub library: T,
    pub library_version: T,
    pub address: T,
    pub local_address: T,
}

/// Words of numbers, and of each text, in the order of [`Shown`].
const NUMBERS: usize = 10;
const TEXTS: [usize; 7] = [2, 8, 8, 4, 4, 14, 14];
const WORDS: usize = NUMBERS + 2 + 8 + 8 + 4 + 4 + 14 + 14;

#[repr(C)]
struct Place {
    /// The number of its front and 1; 0: nobody's.
    front: AtomicU32,
    /// The client of this number is to end.
    end: AtomicU64,
    /// Odd while it is written.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

#[repr(C, align(64))]
struct Front {
    /// 0: there is none.
    pid: AtomicU32,
    /// Somebody wants clients of it to be ended.
    ends: AtomicU32,
    /// Places that were claimed for it, and how many clients it takes now.
    claimed: AtomicU64,
    room: AtomicU64,
    clients: AtomicU64,
    /// Clients that are told of changes.
    tracking: AtomicU64,
    /// Keys whose changes clients are told of.
    tracked_keys: AtomicU64,
    largest_batch: AtomicU64,
    figures: [AtomicU64; FIGURES],
    /// What the figures were when they were set back.
    base: [AtomicU64; FIGURES],
}

#[repr(C)]
struct Head {
    database: AtomicU32,
    /// The last client's number.
    last_id: AtomicU64,
    /// Places from here on were never used.
    fresh: AtomicU64,
    /// Where a place was found last, when there were no fresh ones.
    found: AtomicU64,
    /// When the figures were set back.
    reset: AtomicI64,
    /// Until when commands are held back, twice, and 1 for all commands; 0: they are not.
    pause: AtomicI64,
    fronts: [Front; MOST_PROCESSES],
}

/// Bytes of a board with places for so many clients.
pub fn bytes(clients: usize) -> usize {
    places_at() + clients * size_of::<Place>()
}

fn places_at() -> usize {
    size_of::<Head>().next_multiple_of(64)
}

/// The board of this server.
#[derive(Clone, Copy)]
pub struct Board {
    head: &'static Head,
    places: &'static [Place],
}

/// Which commands are held back, and until when.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    pub until: Timestamp,
    /// All; else those that write.
    pub all: bool,
}

/// Clients that were let in, of all fronts.
#[derive(Clone, Copy, Default)]
pub struct LoggedIn {
    pub of_role: usize,
    pub all: usize,
}

/// The place of a client of this process.
pub struct Claimed(usize);

impl Board {
    /// None where nothing listens.
    pub fn of_server() -> Option<Board> {
        let area = area::of_server()?;
        // SAFETY: as many bytes lie there from an aligned address on, zeroed at the start, for as
        // long as the server lives; all that is in them is atomic.
        unsafe {
            Some(Board {
                head: area.board.cast().as_ref(),
                places: std::slice::from_raw_parts(
                    area.board.add(places_at()).cast().as_ptr(),
                    area.clients,
                ),
            })
        }
    }

    fn front(&self, number: usize) -> &'static Front {
        &self.head.fronts[number % MOST_PROCESSES]
    }

    /// This process is the front of this number. What its predecessor has shown is taken away; gives
    /// what that has counted.
    pub fn begin_front(&self, number: usize) -> Figures {
        for place in self.places {
            if place.front.load(Acquire) == number as u32 + 1 {
                self.clear(place);
            }
        }
        let front = self.front(number);
        front.room.store(0, Relaxed);
        front.clients.store(0, Relaxed);
        front.tracking.store(0, Relaxed);
        front.tracked_keys.store(0, Relaxed);
        front.ends.store(0, Relaxed);
        front.pid.store(background::own_pid(), SeqCst);
        self.head
            .reset
            .compare_exchange(0, clock::now(), Relaxed, Relaxed)
            .ok();
        array::from_fn(|at| front.figures[at].load(Relaxed))
    }

    /// The front of this number ends, and its clients with it.
    pub fn end_front(&self, number: usize) {
        let front = self.front(number);
        front.pid.store(0, SeqCst);
        front.room.store(0, Relaxed);
        front.clients.store(0, Relaxed);
        front.tracking.store(0, Relaxed);
        front.tracked_keys.store(0, Relaxed);
    }

    /// Says which database is served.
    pub fn set_database(&self, database: Oid) {
        self.head.database.store(database.to_u32(), Relaxed);
    }

    /// The database that is served.
    pub fn database(&self) -> Oid {
        Oid::from_u32(self.head.database.load(Relaxed))
    }

    /// A number for a client, never used again in this life of the server.
    pub fn new_id(&self) -> u64 {
        self.head.last_id.fetch_add(1, Relaxed) + 1
    }

    /// A place for a client of this front; None: there is none. `former` was given back by this
    /// process, and others may have claimed it since.
    pub fn claim(&self, number: usize, former: &mut Vec<Claimed>) -> Option<Claimed> {
        let claims = |at: usize| {
            let place = self.places.get(at)?;
            let own = number as u32 + 1;
            let claimed = place.front.compare_exchange(0, own, AcqRel, Relaxed);
            claimed.ok().map(|_| {
                self.front(number).claimed.fetch_add(1, Relaxed);
                Claimed(at)
            })
        };
        while let Some(Claimed(at)) = former.pop() {
            if let Some(claimed) = claims(at) {
                return Some(claimed);
            }
        }
        let most = self.places.len() as u64;
        let more = |fresh| (fresh < most).then_some(fresh + 1);
        match self.head.fresh.fetch_update(Relaxed, Relaxed, more) {
            Ok(fresh) => claims(fresh as usize),
            Err(_) => {
                let found = self.head.found.load(Relaxed) as usize;
                let mut all =
                    (1..=self.places.len()).map(|step| (found + step) % self.places.len());
                let claimed = all.find_map(claims)?;
                self.head.found.store(claimed.0 as u64, Relaxed);
                Some(claimed)
            }
        }
    }

    /// A place is nobody's from here on.
    fn clear(&self, place: &Place) {
        if let Some(number) = place.clear().checked_sub(1) {
            self.front(number as usize).claimed.fetch_sub(1, Relaxed);
        }
    }

    /// The client of a place is gone.
    pub fn give_back(&self, claimed: &Claimed) {
        if let Some(place) = self.places.get(claimed.0) {
            self.clear(place);
        }
    }

    /// The place of a client of this front, where that is lost.
    pub fn place_of(&self, number: usize, id: u64) -> Option<Claimed> {
        let own = number as u32 + 1;
        let is_it = |place: &Place| place.id() == id && place.front.load(Relaxed) == own;
        self.used().iter().position(is_it).map(Claimed)
    }

    /// Shows a client at its place; `all`: also what seldom changes.
    pub fn show(&self, claimed: &Claimed, shown: &Shown<&[u8]>, all: bool) {
        if let Some(place) = self.places.get(claimed.0) {
            place.write(shown, all);
        }
    }

    /// All clients, with the processes that have them.
    pub fn clients(&self) -> impl Iterator<Item = (u32, Shown)> + use<> {
        let board = *self;
        let used = self.used();
        used.iter().filter_map(move |place| {
            let (front, shown) = place.read()?;
            Some((board.front(front).pid.load(Relaxed), shown))
        })
    }

    fn used(&self) -> &'static [Place] {
        let fresh = self.head.fresh.load(Relaxed) as usize;
        self.places.get(..fresh).unwrap_or(self.places)
    }

    /// Asks that the client of this number is ended; whether it is there.
    pub fn end(&self, id: u64) -> bool {
        let is_it = |place: &&Place| place.id() == id && place.front.load(Acquire) != 0;
        let Some(place) = self.used().iter().find(is_it) else {
            return false;
        };
        let number = place.front.load(Acquire);
        place.end.store(id, SeqCst);
        let Some(number) = number.checked_sub(1) else {
            return false;
        };
        let front = self.front(number as usize);
        front.ends.fetch_add(1, SeqCst);
        background::wake(front.pid.load(Acquire));
        true
    }

    /// Whether somebody wants a client of this front to be ended, since it was last asked.
    #[inline]
    pub fn has_ends(&self, number: usize) -> bool {
        let ends = &self.front(number).ends;
        ends.load(Relaxed) != 0 && ends.swap(0, SeqCst) != 0
    }

    /// Whether the client of a place is to end.
    pub fn is_to_end(&self, claimed: &Claimed, id: u64) -> bool {
        let place = self.places.get(claimed.0);
        place.is_some_and(|place| place.end.load(SeqCst) == id)
    }

    /// Says what a front has counted, and what there is of it now.
    pub fn set_figures(&self, number: usize, figures: &Figures, now: &Now) {
        let front = self.front(number);
        for (place, figure) in front.figures.iter().zip(figures) {
            place.store(*figure, Relaxed);
        }
        front.clients.store(now.clients, Relaxed);
        front.tracking.store(now.tracking, Relaxed);
        front.tracked_keys.store(now.tracked_keys, Relaxed);
        if now.largest_batch > front.largest_batch.load(Relaxed) {
            front.largest_batch.store(now.largest_batch, Relaxed);
        }
    }

    /// What was counted by all fronts since the figures were set back.
    pub fn figures(&self) -> Figures {
        array::from_fn(|at| {
            let of_front = |front: &Front| {
                let figure = front.figures[at].load(Relaxed);
                figure.saturating_sub(front.base[at].load(Relaxed))
            };
            self.head.fronts.iter().map(of_front).sum()
        })
    }

    /// What there is now, of all fronts.
    pub fn now(&self) -> Now {
        let fronts = || self.head.fronts.iter();
        let batch = fronts().map(|front| front.largest_batch.load(Relaxed));
        Now {
            clients: fronts().map(|front| front.clients.load(Relaxed)).sum(),
            tracking: fronts().map(|front| front.tracking.load(Relaxed)).sum(),
            tracked_keys: fronts().map(|front| front.tracked_keys.load(Relaxed)).sum(),
            largest_batch: batch.max().unwrap_or(0),
        }
    }

    /// Sets the figures back to 0.
    pub fn reset(&self) {
        for front in &self.head.fronts {
            for (base, figure) in front.base.iter().zip(&front.figures) {
                base.store(figure.load(Relaxed), Relaxed);
            }
            front.largest_batch.store(0, Relaxed);
        }
        self.head.reset.store(clock::now(), Relaxed);
    }

    /// Since when it was counted.
    pub fn since(&self) -> Timestamp {
        self.head.reset.load(Relaxed)
    }

    /// Which commands are held back; None: none.
    #[inline]
    pub fn pause(&self) -> Option<Pause> {
        match self.head.pause.load(Relaxed) {
            0 => None,
            word => Some(Pause {
                until: word >> 1,
                all: word & 1 == 1,
            }),
        }
    }

    /// Holds commands back: until the later moment, and all of them, if one is held back already.
    pub fn begin_pause(&self, until: Timestamp, all: bool) {
        let now = clock::now();
        let joined = |word: i64| {
            let former = word >> 1;
            let goes_on = word != 0 && former > now;
            let until = if goes_on { former.max(until) } else { until };
            let all = all || goes_on && word & 1 == 1;
            Some(until << 1 | i64::from(all))
        };
        self.head.pause.fetch_update(AcqRel, Relaxed, joined).ok();
        self.wake_fronts();
    }

    /// Holds nothing back any more.
    pub fn end_pause(&self) {
        self.head.pause.store(0, Release);
        self.wake_fronts();
    }

    /// Wakes all fronts.
    pub fn wake_fronts(&self) {
        let pids = self.head.fronts.iter().map(|front| front.pid.load(SeqCst));
        pids.filter(|&pid| pid != 0).for_each(background::wake);
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Place {
    fn id(&self) -> u64 {
        self.words[0].load(Relaxed)
    }

    /// Gives the number of the front that had it, and 1.
    fn clear(&self) -> u32 {
        self.words[0].store(0, Relaxed);
        self.end.store(0, Relaxed);
        // A writer that has died left it odd.
        self.version
            .store((self.version.load(Relaxed) | 1) + 1, Relaxed);
        self.front.swap(0, AcqRel)
    }

    fn write(&self, shown: &Shown<&[u8]>, all: bool) {
        let version = self.version.load(Relaxed);
        self.version.store(version | 1, Relaxed);
        fence(Release);
        let flags = u32::from(shown.protocol)
            | u32::from(shown.in_transaction) << 8
            | u32::from(shown.no_evict) << 9
            | u32::from(shown.is_superuser) << 10
            | u32::from(shown.tracks) << 11
            | u32::from(shown.broadcasts) << 12
            | u32::from(shown.redirect_broken) << 13;
        let numbers: [u64; NUMBERS] = [
            shown.id,
            pair(shown.role, shown.database),
            shown.connected as u64,
            shown.last_heard as u64,
            shown.commands,
            pair(shown.input, shown.output),
            pair(shown.channels, shown.patterns),
            pair(shown.watched, shown.collected),
            pair(flags, 0),
            shown.redirect,
        ];
        let (places, mut texts) = self.words.split_at(NUMBERS);
        for (place, number) in places.iter().zip(numbers) {
            place.store(number, Relaxed);
        }
        let shown_texts = [
            shown.last_command,
            shown.user,
            shown.name,
            shown.library,
            shown.library_version,
            shown.address,
            shown.local_address,
        ];
        // The last command is the first of the texts, and the only one that changes often.
        let count = if all { TEXTS.len() } else { 1 };
        for (length, text) in TEXTS.into_iter().zip(shown_texts).take(count) {
            let (own, rest) = texts.split_at(length);
            texts = rest;
            let mut bytes = text.chunks(8);
            for word in own {
                let mut eight = [0; 8];
                let chunk = bytes.next().unwrap_or_default();
                eight[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_le_bytes(eight), Relaxed);
            }
        }
        self.version.store((version | 1) + 1, Release);
    }

    /// None where nobody is, or where it could not be read because it is written all the time.
    fn read(&self) -> Option<(usize, Shown)> {
        for _ in 0..TRIES {
            let front = self.front.load(Acquire);
            let version = self.version.load(Acquire);
            if version & 1 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let words: [u64; WORDS] = array::from_fn(|at| self.words[at].load(Relaxed));
            fence(Acquire);
            if self.version.load(Relaxed) == version {
                let number = front.checked_sub(1).filter(|_| words[0] != 0)?;
                return Some((number as usize, shown(&words)));
            }
        }
        None
    }
}

fn shown(words: &[u64; WORDS]) -> Shown {
    let (numbers, mut rest) = words.split_at(NUMBERS);
    let mut texts = TEXTS.map(|length| {
        let (own, others) = rest.split_at(length);
        rest = others;
        let mut bytes: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().rposition(|&byte| byte != 0);
        bytes.truncate(end.map_or(0, |end| end + 1));
        bytes
    });
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let flags = low(number(8));
    let mut text = |at: usize| texts.get_mut(at).map(std::mem::take).unwrap_or_default();
    Shown {
        id: number(0),
        role: low(number(1)),
        database: high(number(1)),
        connected: number(2) as i64,
        last_heard: number(3) as i64,
        commands: number(4),
        input: low(number(5)),
        output: high(number(5)),
        channels: low(number(6)),
        patterns: high(number(6)),
        watched: low(number(7)),
        collected: high(number(7)),
        protocol: flags as u8,
        in_transaction: flags & 1 << 8 != 0,
        no_evict: flags & 1 << 9 != 0,
        is_superuser: flags & 1 << 10 != 0,
        tracks: flags & 1 << 11 != 0,
        broadcasts: flags & 1 << 12 != 0,
        redirect_broken: flags & 1 << 13 != 0,
        redirect: number(9),
        last_command: text(0),
        user: text(1),
        name: text(2),
        library: text(3),
        library_version: text(4),
        address: text(5),
        local_address: text(6),
    }
}

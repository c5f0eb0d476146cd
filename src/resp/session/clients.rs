//! All clients of a network process, by index and by id. A client is taken out of the collection while it is served, so
//! that its commands can access the other clients.

use std::collections::HashMap;

use crate::resp::session::connection::Connection;

/// The clients of a network process.
#[derive(Default)]
pub struct Clients {
    places: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    by_id: HashMap<u64, usize>,
}

impl Clients {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the index that the next client gets.
    pub fn next_place(&self) -> usize {
        self.free.last().copied().unwrap_or(self.places.len())
    }

    /// Adds a client at the next index.
    pub fn add(&mut self, client: Connection) {
        let place = self.next_place();
        self.free.pop();
        self.by_id.insert(client.session.id, place);
        if place == self.places.len() {
            self.places.push(None);
        }
        if let Some(empty) = self.places.get_mut(place) {
            *empty = Some(Box::new(client));
        }
    }

    pub fn get_mut(&mut self, place: usize) -> Option<&mut Connection> {
        self.places.get_mut(place)?.as_deref_mut()
    }

    pub fn place_of(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// Returns the client with this id; None if it does not exist or is taken out.
    pub fn of_id(&self, id: u64) -> Option<&Connection> {
        self.places.get(self.place_of(id)?)?.as_deref()
    }

    /// Takes a client out to serve it.
    pub fn take(&mut self, place: usize) -> Option<Box<Connection>> {
        self.places.get_mut(place)?.take()
    }

    /// Takes the client at this index out if it has this id.
    pub fn take_if(&mut self, place: usize, id: u64) -> Option<Box<Connection>> {
        let client = self.places.get_mut(place)?;
        client.take_if(|client| client.session.id == id)
    }

    /// Puts a client back that was taken out.
    pub fn put_back(&mut self, place: usize, client: Box<Connection>) {
        if let Some(empty) = self.places.get_mut(place) {
            *empty = Some(client);
        }
    }

    /// Removes a client, which may have been taken out.
    pub fn remove(&mut self, place: usize, id: u64) {
        self.by_id.remove(&id);
        if let Some(full) = self.places.get_mut(place) {
            *full = None;
            self.free.push(place);
        }
    }

    /// Iterates over all clients and their indexes, except the client that is taken out.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        self.places
            .iter_mut()
            .enumerate()
            .filter_map(|(place, client)| Some((place, client.as_deref_mut()?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.places.iter().filter_map(|client| client.as_deref())
    }
}

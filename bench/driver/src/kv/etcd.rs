//! An etcd client over gRPC. The messages are from etcd's rpc.proto, with only the fields that the loads use.

use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::store::{Entries, Store};
use crate::Result;

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "5")]
    value: String,
}

/// A range of keys, or a single key if the end is empty.
#[derive(Clone, PartialEq, Message)]
struct Range {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    end: String,
    #[prost(int64, tag = "3")]
    limit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Found {
    #[prost(message, repeated, tag = "2")]
    entries: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

/// A transaction that compares nothing, so that it always runs its success branch.
#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "2")]
    on_success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Watch {
    #[prost(message, optional, tag = "1")]
    create: Option<Range>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, optional, tag = "2")]
    entry: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Watched {
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

/// A connection and its runtime. Each client of a load is a thread that blocks on its own runtime.
pub struct Etcd {
    runtime: Runtime,
    client: Grpc<Channel>,
    watch: Option<(Streaming<Watched>, Duration)>,
}

impl Etcd {
    pub fn open(path: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(format!("unix://{path}"))?;
        let client = Grpc::new(runtime.block_on(endpoint.connect())?);
        Ok(Etcd { runtime, client, watch: None })
    }

    fn call<A: Message + Default + 'static>(
        &mut self,
        path: &'static str,
        message: impl Message + 'static,
    ) -> Result<A> {
        let Etcd { runtime, client, .. } = self;
        runtime.block_on(async {
            client.ready().await?;
            let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
            Ok(client.unary(Request::new(message), path, codec).await?.into_inner())
        })
    }

    fn range(&mut self, range: Range) -> Result<Entries> {
        let found: Found = self.call("/etcdserverpb.KV/Range", range)?;
        Ok(found.entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
    }
}

fn below(prefix: &str, limit: i64) -> Range {
    Range { key: prefix.into(), end: end_of(prefix), limit }
}

/// Returns the first key after all keys with a prefix. The prefix must end with an ASCII character.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    let last = end.pop().map(|last| (last as u8 + 1) as char);
    end.extend(last);
    end
}

impl Store for Etcd {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.call("/etcdserverpb.KV/Put", Put { key: key.into(), value: value.into() })
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        let found = self.range(Range { key: key.into(), ..Range::default() })?;
        Ok(found.into_iter().next().map(|(_, value)| value))
    }

    fn scan(&mut self, prefix: &str, most: u32) -> Result<Entries> {
        self.range(below(prefix, most.into()))
    }

    fn delete(&mut self, key: &str) -> Result<()> {
        self.call("/etcdserverpb.KV/DeleteRange", Range { key: key.into(), ..Range::default() })
    }

    fn put_all(&mut self, entries: &[(String, String)]) -> Result<()> {
        self.call("/etcdserverpb.KV/Txn", transaction(entries))
    }

    fn watch(&mut self, prefix: &str, patience: Duration) -> Result<()> {
        let Etcd { runtime, client, .. } = self;
        let create = Watch { create: Some(below(prefix, 0)) };
        // The stream of requests stays open, because its end would end the watch.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let answers = runtime.block_on(async {
            client.ready().await?;
            let codec = ProstCodec::<Watch, Watched>::default();
            Ok::<_, crate::Failure>(client.streaming(Request::new(requests), path, codec).await?)
        })?;
        self.watch = Some((answers.into_inner(), patience));
        self.changed().map(drop) // reads the confirmation that the watch exists
    }

    fn changed(&mut self) -> Result<Vec<String>> {
        let (watch, patience) = self.watch.as_mut().ok_or("nothing is watched")?;
        let next = async { tokio::time::timeout(*patience, watch.message()).await };
        let watched = self.runtime.block_on(next)??.ok_or("etcd ended the watch")?;
        Ok(watched.events.into_iter().filter_map(|event| Some(event.entry?.key)).collect())
    }
}

fn transaction(entries: &[(String, String)]) -> Transaction {
    let put = |(key, value): &(String, String)| Put { key: key.clone(), value: value.clone() };
    let on_success = entries.iter().map(|entry| Operation { put: Some(put(entry)) }).collect();
    Transaction { on_success }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_written_as_the_protocol_says() {
        // success { request_put { key "k" value "v" } }
        let message = transaction(&[("k".into(), "v".into())]).encode_to_vec();
        assert_eq!(message, b"\x12\x08\x12\x06\x0a\x01k\x12\x01v");
    }

    #[test]
    fn fields_that_no_load_needs_are_passed_over() {
        // RangeResponse: kvs { key "k" create_revision 300 value "v" } count 1
        let answer = &b"\x12\x09\x0a\x01k\x10\xac\x02\x2a\x01v\x20\x01"[..];
        let found = Found::decode(answer).unwrap();
        assert_eq!(found.entries, [KeyValue { key: "k".into(), value: "v".into() }]);
    }

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(end_of("key:0"), "key:1");
    }
}

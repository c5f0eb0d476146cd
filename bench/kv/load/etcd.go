package main

import (
	"context"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

type etcdStore struct{ client *etcd.Client }

func openEtcd(where string) opener {
	return func(context.Context) (store, error) {
		client, err := etcd.New(etcd.Config{Endpoints: []string{where}, DialTimeout: 30 * time.Second})
		return etcdStore{client}, err
	}
}

func (s etcdStore) put(ctx context.Context, key, value string) error {
	_, err := s.client.Put(ctx, key, value)
	return err
}

func (s etcdStore) get(ctx context.Context, key string) (string, bool, error) {
	answer, err := s.client.Get(ctx, key)
	if err != nil || len(answer.Kvs) == 0 {
		return "", false, err
	}
	return string(answer.Kvs[0].Value), true, nil
}

func (s etcdStore) scan(ctx context.Context, prefix string, most int) ([]entry, error) {
	answer, err := s.client.Get(ctx, prefix, etcd.WithPrefix(), etcd.WithLimit(int64(most)))
	if err != nil {
		return nil, err
	}
	found := make([]entry, len(answer.Kvs))
	for i, pair := range answer.Kvs {
		found[i] = entry{string(pair.Key), string(pair.Value)}
	}
	return found, nil
}

func (s etcdStore) delete(ctx context.Context, key string) error {
	_, err := s.client.Delete(ctx, key)
	return err
}

func (s etcdStore) putAll(ctx context.Context, entries []entry) error {
	puts := make([]etcd.Op, len(entries))
	for i, entry := range entries {
		puts[i] = etcd.OpPut(entry.key, entry.value)
	}
	_, err := s.client.Txn(ctx).Then(puts...).Commit()
	return err
}

func (s etcdStore) watch(ctx context.Context, prefix string, ready func(), arrived func(key string)) error {
	for told := range s.client.Watch(ctx, prefix, etcd.WithPrefix(), etcd.WithCreatedNotify()) {
		if err := told.Err(); err != nil {
			return err
		}
		if told.Created {
			ready()
		}
		for _, event := range told.Events {
			arrived(string(event.Kv.Key))
		}
	}
	return ctx.Err()
}

func (s etcdStore) close() { s.client.Close() }

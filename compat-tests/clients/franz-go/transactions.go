package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions carries out what is about transactions. Producers stay open from one operation to the next.
func (d *driver) transactions(ctx context.Context, r request) (any, error) {
	producer := d.open[r.Handle]
	switch r.Op {
	case "txn_open":
		client, err := kgo.NewClient(d.transactional(r.ID, time.Duration(r.TimeoutMs)*time.Millisecond)...)
		if err == nil {
			_, _, err = client.ProducerID(ctx) // else it would ask for it when it first produces, and fence nobody before
		}
		d.open[r.Handle] = client
		return nil, err
	case "txn_begin":
		return nil, producer.BeginTransaction()
	case "txn_send":
		records := []*kgo.Record{}
		for _, value := range r.Values {
			records = append(records, &kgo.Record{Topic: r.Topic, Value: []byte(value)})
		}
		return nil, producer.ProduceSync(ctx, records...).FirstErr()
	case "txn_end":
		return nil, producer.EndTransaction(ctx, kgo.TransactionEndTry(r.Commit))
	case "txn_close":
		delete(d.open, r.Handle)
		producer.Close()
		return nil, nil
	case "transform":
		return d.transform(ctx, r)
	case "list_transactions":
		listed, err := d.admin.ListTransactions(ctx, nil, nil)
		states := map[string]string{}
		for _, one := range listed {
			states[one.TxnID] = strings.ToUpper(one.State)
		}
		return states, err
	case "describe_transaction":
		described, err := d.admin.DescribeTransactions(ctx, r.ID)
		if err != nil {
			return nil, err
		}
		one := described[r.ID]
		partitions := []string{}
		one.Topics.Each(func(topic string, partition int32) {
			partitions = append(partitions, fmt.Sprintf("%s-%d", topic, partition))
		})
		return object{"state": strings.ToUpper(one.State), "partitions": partitions}, one.Err
	case "describe_producers":
		topics := kadm.TopicsSet{}
		topics.Add(r.Topic, r.Partition)
		described, err := d.admin.DescribeProducers(ctx, topics)
		starts := []any{}
		for _, one := range described[r.Topic].Partitions[r.Partition].ActiveProducers {
			if one.CurrentTxnStartOffset < 0 {
				starts = append(starts, nil)
			} else {
				starts = append(starts, one.CurrentTxnStartOffset)
			}
		}
		return starts, err
	}
	return nil, fmt.Errorf("unknown operation %s", r.Op)
}

func (d *driver) transactional(id string, timeout time.Duration) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(d.seeds...), kgo.TransactionalID(id), kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}
}

func isolation(settings map[string]string) kgo.Opt {
	if settings["isolation.level"] == "read_committed" {
		return kgo.FetchIsolationLevel(kgo.ReadCommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
}

// transform copies records with a mark, a few in each transaction; every so many are aborted and done again.
func (d *driver) transform(ctx context.Context, r request) (any, error) {
	session, err := kgo.NewGroupTransactSession(append(d.transactional(r.ID, time.Minute), kgo.ConsumerGroup(r.Group),
		kgo.ConsumeTopics(r.Source), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	copied, rounds, aborted := 0, 0, 0
	for copied < r.Count {
		fetches := session.PollRecords(ctx, 5)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		marked := []*kgo.Record{}
		fetches.EachRecord(func(got *kgo.Record) {
			marked = append(marked, &kgo.Record{Topic: r.Target, Partition: got.Partition, Key: got.Key, Value: append(got.Value, '!')})
		})
		if err := session.ProduceSync(ctx, marked...).FirstErr(); err != nil {
			return nil, err
		}
		rounds++
		committed, err := session.End(ctx, kgo.TransactionEndTry(rounds%r.AbortEvery != 0))
		if err != nil {
			return nil, err
		}
		if committed {
			copied += len(marked)
		} else {
			aborted++
		}
	}
	return object{"copied": copied, "aborted": aborted}, nil
}

// The common script (lib/script.py) through sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const limit = 30 * time.Second

var (
	bootstrap = strings.Split(os.Args[1], ",")
	admin     sarama.ClusterAdmin
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Return.Errors = true
	return c
}

func report(name string, work func() error) {
	if err := work(); err != nil {
		fmt.Printf("failed %s -- %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
	} else {
		fmt.Printf("passed %s\n", name)
	}
}

func same[T any](got, wanted T, what string) error {
	if a, b := fmt.Sprint(got), fmt.Sprint(wanted); a != b {
		return fmt.Errorf("%s: %s instead of %s", what, a, b)
	}
	return nil
}

func until(reached func() bool, what string) error {
	for end := time.Now().Add(limit); !reached(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not within %s: %s", limit, what)
		}
	}
	return nil
}

func unique(word string) string { return fmt.Sprintf("%s-%08x", word, rand.Uint32()) }

func partitions(name string) int {
	found, err := admin.DescribeTopics([]string{name})
	if err != nil || found[0].Err != sarama.ErrNoError {
		return 0
	}
	return len(found[0].Partitions)
}

func topic(count int32, settings map[string]*string) (string, error) {
	name := unique("sarama")
	detail := &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: -1, ConfigEntries: settings}
	if err := admin.CreateTopic(name, detail, false); err != nil {
		return name, err
	}
	return name, until(func() bool { return partitions(name) == int(count) }, name+" is there")
}

func produce(name string, count int, partition int32, prefix string, codec sarama.CompressionCodec) ([]string, error) {
	c := config()
	c.Producer.Compression = codec
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(bootstrap, c)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	var sent []string
	for n := range count {
		where := partition
		if where < 0 {
			where = int32(n % 3)
		}
		key, value := fmt.Sprintf("%sk%d", prefix, n), strings.Repeat(fmt.Sprintf("%sv%d", prefix, n), 10)
		messages = append(messages, &sarama.ProducerMessage{Topic: name, Partition: where, Key: sarama.StringEncoder(key),
			Value: sarama.StringEncoder(value), Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte(key)}}})
		sent = append(sent, fmt.Sprint(where, key, value))
	}
	return sent, producer.SendMessages(messages)
}

func text(m *sarama.ConsumerMessage) string {
	return fmt.Sprint(m.Partition, string(m.Key), string(m.Value))
}

func read(name string, starts map[int32]int64, count int, wait time.Duration, level sarama.IsolationLevel) ([]*sarama.ConsumerMessage, error) {
	c := config()
	c.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer(bootstrap, c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	messages, failures := make(chan *sarama.ConsumerMessage, 1000), make(chan error, 10)
	for partition, offset := range starts {
		reader, err := consumer.ConsumePartition(name, partition, offset)
		if err != nil {
			return nil, err
		}
		defer reader.AsyncClose()
		go func() {
			for m := range reader.Messages() {
				messages <- m
			}
		}()
		go func() {
			for e := range reader.Errors() {
				failures <- e.Err
			}
		}()
	}
	var got []*sarama.ConsumerMessage
	for late := time.After(wait); len(got) < count; {
		select {
		case m := <-messages:
			got = append(got, m)
		case err := <-failures:
			return got, err
		case <-late:
			return got, nil
		}
	}
	return got, nil
}

func compare(got []*sarama.ConsumerMessage, sent []string) error {
	var words []string
	for _, m := range got {
		words = append(words, text(m))
	}
	sent = slices.Clone(sent)
	slices.Sort(words)
	slices.Sort(sent)
	return same(words, sent, "what was read")
}

func setting(name, key string) string {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: name, ConfigNames: []string{key}})
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Value
}

func alter(name, key, value string) error {
	change := map[string]sarama.IncrementalAlterConfigsEntry{key: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, name, change, false); err != nil {
		return err
	}
	return until(func() bool { return setting(name, key) == value }, key+" is "+value)
}

func refused(wanted error, work func() error) error {
	if err := work(); !errors.Is(err, wanted) {
		return fmt.Errorf("%v was due, and came %v", wanted, err)
	}
	return nil
}

func partAdmin() {
	var name string
	value := "123456"
	report("create", func() (err error) { name, err = topic(3, map[string]*string{"retention.ms": &value}); return })
	report("describe", func() error { return same(setting(name, "retention.ms"), value, "retention.ms") })
	report("configure", func() error { return alter(name, "retention.ms", "7777") })
	report("grow", func() error {
		if err := admin.CreatePartitions(name, 5, nil, false); err != nil {
			return err
		}
		return until(func() bool { return partitions(name) == 5 }, "five partitions")
	})
	report("delete", func() error {
		if err := admin.DeleteTopic(name); err != nil {
			return err
		}
		return until(func() bool { return partitions(name) == 0 }, "gone")
	})
}

func partProduce() {
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
		sarama.CompressionLZ4, sarama.CompressionZSTD} {
		report(codec.String(), func() error {
			name, err := topic(3, nil)
			if err != nil {
				return err
			}
			sent, err := produce(name, 100, -1, "", codec)
			if err != nil {
				return err
			}
			got, err := read(name, map[int32]int64{0: 0, 1: 0, 2: 0}, 100, limit, sarama.ReadUncommitted)
			return errors.Join(err, compare(got, sent))
		})
	}
}

func partConsume() {
	name, err := topic(1, nil)
	must(err)
	sent, err := produce(name, 50, 0, "", sarama.CompressionNone)
	must(err)
	time.Sleep(50 * time.Millisecond)
	moment := time.Now().UnixMilli()
	more, err := produce(name, 50, 0, "later-", sarama.CompressionNone)
	must(err)
	sent = append(sent, more...)
	report("from an offset", func() error {
		got, err := read(name, map[int32]int64{0: 30}, 70, limit, sarama.ReadUncommitted)
		return errors.Join(err, compare(got, sent[30:]))
	})
	report("from a time", func() error {
		client, err := sarama.NewClient(bootstrap, config())
		if err != nil {
			return err
		}
		defer client.Close()
		offset, err := client.GetOffset(name, 0, moment)
		return errors.Join(err, same(offset, 50, "the offset of that time"))
	})
	report("to the end", func() error {
		got, err := read(name, map[int32]int64{0: 90}, 11, 3*time.Second, sarama.ReadUncommitted)
		return errors.Join(err, compare(got, sent[90:]))
	})
}

func partErrors() {
	name, err := topic(1, nil)
	must(err)
	create := func(name string) func() error {
		return func() error {
			return admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: -1}, false)
		}
	}
	report("topic exists", func() error { return refused(sarama.ErrTopicAlreadyExists, create(name)) })
	report("invalid topic", func() error { return refused(sarama.ErrInvalidTopic, create("no/such")) })
	report("unknown topic", func() error {
		return refused(sarama.ErrUnknownTopicOrPartition, func() error { return admin.DeleteTopic("not-" + name) })
	})
	report("out of range", func() error {
		return refused(sarama.ErrOffsetOutOfRange, func() error {
			_, err := read(name, map[int32]int64{0: 99}, 1, limit, sarama.ReadUncommitted)
			return err
		})
	})
	report("too large", func() error {
		if err := alter(name, "max.message.bytes", "1000"); err != nil {
			return err
		}
		producer, err := sarama.NewSyncProducer(bootstrap, config())
		if err != nil {
			return err
		}
		defer producer.Close()
		return refused(sarama.ErrMessageSizeTooLarge, func() error {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder(strings.Repeat("x", 5000))})
			return err
		})
	})
}

// member takes the messages of its claims, and commits them when it leaves.
type member struct {
	lock   *sync.Mutex
	got    *[]*sarama.ConsumerMessage
	claims int
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claims = 0
	for _, claimed := range s.Claims() {
		m.claims += len(claimed)
	}
	return nil
}

func (m *member) Cleanup(s sarama.ConsumerGroupSession) error { s.Commit(); return nil }

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.lock.Lock()
		*m.got = append(*m.got, message)
		m.lock.Unlock()
		s.MarkMessage(message, "")
	}
	return nil
}

func join(name, group string, members, count int) ([]*sarama.ConsumerMessage, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var got []*sarama.ConsumerMessage
	var lock sync.Mutex
	var all []*member
	var ended sync.WaitGroup
	for range members {
		client, err := sarama.NewConsumerGroup(bootstrap, group, config())
		if err != nil {
			cancel()
			return nil, err
		}
		m := &member{lock: &lock, got: &got}
		all = append(all, m)
		ended.Go(func() {
			for ctx.Err() == nil {
				client.Consume(ctx, []string{name}, m)
			}
			client.Close()
		})
	}
	err := until(func() bool {
		lock.Lock()
		defer lock.Unlock()
		for _, m := range all {
			if m.claims != 4/members {
				return false
			}
		}
		return len(got) >= count
	}, fmt.Sprint(count, " records, shared equally"))
	cancel()
	ended.Wait()
	return got, err
}

func partGroup() {
	name, err := topic(4, nil)
	must(err)
	group := unique("group")
	report("two members", func() error {
		var sent []string
		for partition := range int32(4) {
			more, err := produce(name, 10, partition, fmt.Sprint(partition, "-"), sarama.CompressionNone)
			if err != nil {
				return err
			}
			sent = append(sent, more...)
		}
		got, err := join(name, group, 2, 40)
		seen := map[string]*sarama.ConsumerMessage{}
		for _, m := range got {
			seen[text(m)] = m
		}
		var once []*sarama.ConsumerMessage
		for _, m := range seen {
			once = append(once, m)
		}
		return errors.Join(err, compare(once, sent))
	})
	report("committed", func() error {
		sent, err := produce(name, 5, 2, "after-", sarama.CompressionNone)
		if err != nil {
			return err
		}
		got, err := join(name, group, 1, 5)
		if err = errors.Join(err, compare(got, sent)); err != nil {
			return err
		}
		told, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{name: {0, 1, 2, 3}})
		if err != nil {
			return err
		}
		var offsets []int64
		for partition := range int32(4) {
			offsets = append(offsets, told.GetBlock(name, partition).Offset)
		}
		return same(offsets, []int64{10, 10, 15, 10}, "committed")
	})
	report("list", func() error {
		groups, err := admin.ListConsumerGroups()
		_, there := groups[group]
		return errors.Join(err, same(there, true, "the group is listed"))
	})
}

func partTransaction() {
	name, err := topic(1, nil)
	must(err)
	c := config()
	c.Producer.Idempotent = true
	c.Producer.Transaction.ID = unique("t")
	c.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(bootstrap, c)
	must(err)
	send := func(value string, end func() error) error {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder(value)})
		return errors.Join(err, end())
	}
	values := func(count int, level sarama.IsolationLevel, wanted ...string) error {
		got, err := read(name, map[int32]int64{0: 0}, count, limit, level)
		var words []string
		for _, m := range got {
			words = append(words, string(m.Value))
		}
		return errors.Join(err, same(words, wanted, "what is read"))
	}
	report("commit", func() error {
		return errors.Join(send("one", producer.CommitTxn), values(1, sarama.ReadCommitted, "one"))
	})
	report("abort", func() error {
		return errors.Join(send("never", producer.AbortTxn), send("two", producer.CommitTxn),
			values(2, sarama.ReadCommitted, "one", "two"), values(3, sarama.ReadUncommitted, "one", "never", "two"))
	})
	report("offsets", func() error {
		group := unique("group")
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{name: {{Partition: 0, Offset: 3}}}
		if err := errors.Join(producer.AddOffsetsToTxn(offsets, group), producer.CommitTxn()); err != nil {
			return err
		}
		told, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{name: {0}})
		if err != nil {
			return err
		}
		return same(told.GetBlock(name, 0).Offset, 3, "the committed offset")
	})
	producer.Close()
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	var err error
	admin, err = sarama.NewClusterAdmin(bootstrap, config())
	must(err)
	map[string]func(){"admin": partAdmin, "produce": partProduce, "consume": partConsume, "errors": partErrors, "group": partGroup,
		"transaction": partTransaction}[os.Args[2]]()
	admin.Close()
}

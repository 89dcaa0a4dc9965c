// The common script (lib/script.py) through segmentio/kafka-go. It has no transactions.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const limit = 30 * time.Second

var (
	bootstrap = strings.Split(os.Args[1], ",")
	client    = &kafka.Client{Addr: kafka.TCP(bootstrap...), Timeout: limit}
	ctx       = context.Background()
)

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
	told, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
	if err != nil || len(told.Topics) == 0 || told.Topics[0].Error != nil {
		return 0
	}
	return len(told.Topics[0].Partitions)
}

func create(name string, count int, entries ...kafka.ConfigEntry) error {
	told, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: name, NumPartitions: count, ReplicationFactor: -1, ConfigEntries: entries}}})
	if err != nil {
		return err
	}
	return told.Errors[name]
}

func topic(count int, entries ...kafka.ConfigEntry) (string, error) {
	name := unique("kafka-go")
	if err := create(name, count, entries...); err != nil {
		return name, err
	}
	return name, until(func() bool { return partitions(name) == count }, name+" is there")
}

// byKey sends a record to the partition that its key begins with.
type byKey struct{}

func (byKey) Balance(m kafka.Message, _ ...int) int { return int(m.Key[0] - '0') }

func produce(name string, count, partition int, prefix string, codec kafka.Compression) ([]string, error) {
	writer := &kafka.Writer{Addr: kafka.TCP(bootstrap...), Topic: name, Balancer: byKey{}, RequiredAcks: kafka.RequireAll,
		Compression: codec, BatchTimeout: 10 * time.Millisecond}
	defer writer.Close()
	var messages []kafka.Message
	var sent []string
	for n := range count {
		where := partition
		if where < 0 {
			where = n % 3
		}
		key, value := fmt.Sprintf("%d%sk%d", where, prefix, n), strings.Repeat(fmt.Sprintf("%sv%d", prefix, n), 10)
		messages = append(messages, kafka.Message{Key: []byte(key), Value: []byte(value), Headers: []kafka.Header{{Key: "h", Value: []byte(key)}}})
		sent = append(sent, fmt.Sprint(where, key, value))
	}
	return sent, writer.WriteMessages(ctx, messages...)
}

func text(m kafka.Message) string { return fmt.Sprint(m.Partition, string(m.Key), string(m.Value)) }

func read(name string, partition int, offset int64, count int, wait time.Duration) ([]string, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: bootstrap, Topic: name, Partition: partition, MaxWait: 200 * time.Millisecond})
	defer reader.Close()
	if err := reader.SetOffset(offset); err != nil {
		return nil, err
	}
	return drain(reader, count, wait)
}

func drain(reader *kafka.Reader, count int, wait time.Duration) ([]string, error) {
	late, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var got []string
	for len(got) < count {
		m, err := reader.FetchMessage(late)
		if err == nil && reader.Config().GroupID != "" {
			err = reader.CommitMessages(ctx, m) // not by ReadMessage: it drops a record when its time is up while it commits
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, text(m))
	}
	return got, nil
}

func compare(got, sent []string) error {
	got, sent = slices.Clone(got), slices.Clone(sent)
	slices.Sort(got)
	slices.Sort(sent)
	return same(got, sent, "what was read")
}

func setting(name, key string) string {
	told, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: name, ConfigNames: []string{key}}}})
	if err != nil || len(told.Resources) == 0 || len(told.Resources[0].ConfigEntries) == 0 {
		return ""
	}
	return told.Resources[0].ConfigEntries[0].ConfigValue
}

func alter(name, key, value string) error {
	_, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: name, Configs: []kafka.IncrementalAlterConfigsRequestConfig{
			{Name: key, Value: value, ConfigOperation: kafka.ConfigOperationSet}}}}})
	if err != nil {
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

func remove(name string) error {
	told, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}})
	if err != nil {
		return err
	}
	return told.Errors[name]
}

func partAdmin() {
	var name string
	report("create", func() (err error) {
		name, err = topic(3, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "123456"})
		return
	})
	report("describe", func() error { return same(setting(name, "retention.ms"), "123456", "retention.ms") })
	report("configure", func() error { return alter(name, "retention.ms", "7777") })
	report("grow", func() error {
		told, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: name, Count: 5}}})
		if err = errors.Join(err, told.Errors[name]); err != nil {
			return err
		}
		return until(func() bool { return partitions(name) == 5 }, "five partitions")
	})
	report("delete", func() error {
		if err := remove(name); err != nil {
			return err
		}
		return until(func() bool { return partitions(name) == 0 }, "gone")
	})
}

func partProduce() {
	for word, codec := range map[string]kafka.Compression{"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd} {
		report(word, func() error {
			name, err := topic(3)
			if err != nil {
				return err
			}
			sent, err := produce(name, 99, -1, "", codec)
			if err != nil {
				return err
			}
			var got []string
			for partition := range 3 {
				some, err := read(name, partition, 0, 33, limit)
				if err != nil {
					return err
				}
				got = append(got, some...)
			}
			return compare(got, sent)
		})
	}
}

func partConsume() {
	name, err := topic(1)
	must(err)
	sent, err := produce(name, 50, 0, "", 0)
	must(err)
	time.Sleep(50 * time.Millisecond)
	moment := time.Now()
	more, err := produce(name, 50, 0, "later-", 0)
	must(err)
	sent = append(sent, more...)
	report("from an offset", func() error {
		got, err := read(name, 0, 30, 70, limit)
		return errors.Join(err, compare(got, sent[30:]))
	})
	report("from a time", func() error {
		told, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{name: {kafka.TimeOffsetOf(0, moment)}}})
		if err != nil {
			return err
		}
		for offset := range told.Topics[name][0].Offsets {
			return same(offset, 50, "the offset of that time")
		}
		return errors.New("no offset")
	})
	report("to the end", func() error {
		got, err := read(name, 0, 90, 11, 3*time.Second)
		return errors.Join(err, compare(got, sent[90:]))
	})
}

func partErrors() {
	name, err := topic(1)
	must(err)
	report("topic exists", func() error { return refused(kafka.TopicAlreadyExists, func() error { return create(name, 1) }) })
	report("invalid topic", func() error { return refused(kafka.InvalidTopic, func() error { return create("no/such", 1) }) })
	report("unknown topic", func() error {
		return refused(kafka.UnknownTopicOrPartition, func() error { return remove("not-" + name) })
	})
	report("out of range", func() error {
		return refused(kafka.OffsetOutOfRange, func() error {
			told, err := client.Fetch(ctx, &kafka.FetchRequest{Topic: name, Partition: 0, Offset: 99, MinBytes: 1, MaxBytes: 1000, MaxWait: time.Second})
			if err != nil {
				return err
			}
			return told.Error
		})
	})
	report("too large", func() error {
		if err := alter(name, "max.message.bytes", "1000"); err != nil {
			return err
		}
		return refused(kafka.MessageSizeTooLarge, func() error {
			told, err := client.Produce(ctx, &kafka.ProduceRequest{Topic: name, Partition: 0, RequiredAcks: kafka.RequireAll,
				Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes(bytes.Repeat([]byte("x"), 5000))})})
			if err != nil {
				return err
			}
			return told.Error
		})
	})
}

func member(name, group string) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{Brokers: bootstrap, Topic: name, GroupID: group, StartOffset: kafka.FirstOffset,
		MaxWait: 200 * time.Millisecond, HeartbeatInterval: 200 * time.Millisecond})
}

func partGroup() {
	name, err := topic(4)
	must(err)
	group := unique("group")
	report("two members", func() error {
		var sent []string
		readers := []*kafka.Reader{member(name, group), member(name, group)}
		for _, reader := range readers {
			defer reader.Close()
		}
		for partition := range 4 {
			more, err := produce(name, 10, partition, "-", 0)
			if err != nil {
				return err
			}
			sent = append(sent, more...)
		}
		seen, each := map[string]bool{}, []int{0, 0}
		err := until(func() bool {
			for n, reader := range readers {
				got, _ := drain(reader, 40, 500*time.Millisecond)
				each[n] += len(got)
				for _, m := range got {
					seen[m] = true
				}
			}
			return len(seen) == len(sent)
		}, "all records")
		return errors.Join(err, same(each[0]+each[1] >= 40, true, "records of both"))
	})
	report("committed", func() error {
		sent, err := produce(name, 5, 2, "after-", 0)
		if err != nil {
			return err
		}
		reader := member(name, group)
		defer reader.Close()
		got, err := drain(reader, 5, limit)
		if err = errors.Join(err, compare(got, sent)); err != nil {
			return err
		}
		told, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{name: {0, 1, 2, 3}}})
		if err != nil {
			return err
		}
		offsets := map[int]int64{}
		for _, p := range told.Topics[name] {
			offsets[p.Partition] = p.CommittedOffset
		}
		return same(offsets, map[int]int64{0: 10, 1: 10, 2: 15, 3: 10}, "committed")
	})
	report("list", func() error {
		told, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return err
		}
		return same(slices.ContainsFunc(told.Groups, func(g kafka.ListGroupsResponseGroup) bool { return g.GroupID == group }), true, "listed")
	})
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	parts := map[string]func(){"admin": partAdmin, "produce": partProduce, "consume": partConsume, "errors": partErrors, "group": partGroup}
	if work, there := parts[os.Args[2]]; there {
		work()
		return
	}
	fmt.Println("n/a all -- kafka-go has no transactions but by single requests")
}

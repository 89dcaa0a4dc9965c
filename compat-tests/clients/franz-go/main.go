// Client driver: franz-go (kgo and kadm). The other side is lib/driver.py.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const limit = 30 * time.Second

type record struct {
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp *int64       `json:"timestamp"`
	Type      string       `json:"timestamp_type"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

type request struct {
	Op          string             `json:"op"`
	Topic       string             `json:"topic"`
	Partition   int32              `json:"partition"`
	Partitions  int32              `json:"partitions"`
	Replication int16              `json:"replication"`
	Total       int                `json:"total"`
	Configs     map[string]*string `json:"configs"`
	Set         map[string]*string `json:"set"`
	Delete      []string           `json:"delete"`
	Records     []record           `json:"records"`
	Compression string             `json:"compression"`
	Acks        string             `json:"acks"`
	Idempotent  *bool              `json:"idempotent"`
	Offset      int64              `json:"offset"`
	Count       int                `json:"count"`
	Spec        string             `json:"spec"`
	Before      int64              `json:"before"`
	Group       string             `json:"group"`
	Members     int                `json:"members"`
	Protocol    string             `json:"protocol"`
	Settings    map[string]string  `json:"settings"`
	Handle      string             `json:"handle"`
	ID          string             `json:"id"`
	TimeoutMs   int                `json:"timeout_ms"`
	Values      []string           `json:"values"`
	Commit      bool               `json:"commit"`
	Source      string             `json:"source"`
	Target      string             `json:"target"`
	AbortEvery  int                `json:"abort_every"`
}

type object = map[string]any

func bytesOf(text *string) []byte {
	if text == nil {
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	if raw == nil {
		raw = []byte{}
	}
	return raw
}

func textOf(raw []byte) *string {
	if raw == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(raw)
	return &text
}

type driver struct {
	seeds  []string
	client *kgo.Client
	admin  *kadm.Client
	open   map[string]*kgo.Client // transactional producers
}

func (d *driver) carryOut(ctx context.Context, r request) (any, error) {
	switch r.Op {
	case "hello":
		version := "franz-go"
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, dependency := range info.Deps {
				if dependency.Path == "github.com/twmb/franz-go" {
					version += " " + dependency.Version
				}
			}
		}
		return object{"version": version, "features": object{}, "can": []string{"create_topic", "create_partitions",
			"delete_topic", "list_topics", "describe_topic", "alter_config", "describe_config", "describe_cluster",
			"produce", "fetch", "list_offset", "delete_records", "log_dirs", "read_as_group", "committed", "describe_group",
			"list_groups", "delete_group", "txn_open", "txn_begin", "txn_send", "txn_end", "txn_close", "transform",
			"list_transactions", "describe_transaction", "describe_producers"}}, nil
	case "create_topic":
		if r.Replication == 0 {
			r.Replication = 1
		}
		if _, err := d.admin.CreateTopic(ctx, r.Partitions, r.Replication, r.Configs, r.Topic); err != nil {
			return nil, err
		}
		return nil, d.settle(ctx, r.Topic, int(r.Partitions))
	case "create_partitions":
		answers, err := d.admin.UpdatePartitions(ctx, r.Total, r.Topic)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			return nil, err
		}
		return nil, d.settle(ctx, r.Topic, r.Total)
	case "delete_topic":
		if _, err := d.admin.DeleteTopic(ctx, r.Topic); err != nil {
			return nil, err
		}
		return nil, d.settle(ctx, r.Topic, 0)
	case "list_topics":
		details, err := d.admin.ListTopics(ctx)
		names := details.Names()
		sort.Strings(names)
		return names, err
	case "describe_topic":
		return d.describeTopic(ctx, r.Topic)
	case "alter_config":
		return nil, d.alterConfig(ctx, r)
	case "describe_config":
		resources, err := d.admin.DescribeTopicConfigs(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		resource, err := resources.On(r.Topic, nil)
		if err == nil {
			err = resource.Err
		}
		values := map[string]*string{}
		for _, config := range resource.Configs {
			values[config.Key] = config.Value
		}
		return values, err
	case "describe_cluster":
		meta, err := d.admin.BrokerMetadata(ctx)
		return object{"id": meta.Cluster, "controller": meta.Controller, "nodes": meta.Brokers.NodeIDs()}, err
	case "produce":
		return d.produce(ctx, r)
	case "fetch":
		return d.fetch(ctx, r)
	case "list_offset":
		return d.listOffset(ctx, r)
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(r.Topic, r.Partition, r.Before, -1)
		answers, err := d.admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		answer, _ := answers.Lookup(r.Topic, r.Partition)
		return answer.LowWatermark, answer.Err
	case "log_dirs":
		all, err := d.admin.DescribeAllLogDirs(ctx, nil)
		sizes := map[string]int64{}
		all.Each(func(directory kadm.DescribedLogDir) {
			directory.Topics.Each(func(p kadm.DescribedLogDirPartition) {
				sizes[fmt.Sprintf("%s-%d", p.Topic, p.Partition)] = p.Size
			})
		})
		return sizes, err
	case "read_as_group":
		return d.readAsGroup(ctx, r)
	case "committed":
		answers, err := d.admin.FetchOffsets(ctx, r.Group)
		offsets := map[string]int64{}
		answers.Each(func(o kadm.OffsetResponse) {
			if o.Topic == r.Topic {
				offsets[strconv.Itoa(int(o.Partition))] = o.At
			}
		})
		return offsets, err
	case "describe_group":
		groups, err := d.admin.DescribeGroups(ctx, r.Group)
		if err != nil {
			return nil, err
		}
		group := groups[r.Group]
		return object{"state": strings.ToUpper(group.State), "members": len(group.Members)}, group.Err
	case "list_groups":
		groups, err := d.admin.ListGroups(ctx)
		return groups.Groups(), err
	case "delete_group":
		_, err := d.admin.DeleteGroup(ctx, r.Group)
		return nil, err
	}
	return d.transactions(ctx, r)
}

// readAsGroup reads with several members at a time, which commit what they have read when they give it up.
func (d *driver) readAsGroup(ctx context.Context, r request) (any, error) {
	if r.Protocol == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	ctx, enough := context.WithTimeout(ctx, limit)
	defer enough()
	var mutex sync.Mutex
	var members sync.WaitGroup
	var failure error
	records := []record{}
	commit := func(_ context.Context, client *kgo.Client, _ map[string][]int32) {
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			mutex.Lock()
			failure = err
			mutex.Unlock()
		}
	}
	for i := 0; i < r.Members; i++ {
		client, err := kgo.NewClient(kgo.SeedBrokers(d.seeds...), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic),
			kgo.DisableAutoCommit(), kgo.OnPartitionsRevoked(commit), kgo.BlockRebalanceOnPoll(), kgo.WithContext(context.WithoutCancel(ctx)),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
		if err != nil {
			return nil, err
		}
		members.Add(1)
		go func() {
			defer members.Done()
			for ctx.Err() == nil {
				poll, stop := context.WithTimeout(ctx, 200*time.Millisecond)
				fetches := client.PollRecords(poll, 10)
				stop()
				mutex.Lock()
				fetches.EachRecord(func(got *kgo.Record) {
					records = append(records, record{Partition: got.Partition, Offset: got.Offset, Value: textOf(got.Value)})
				})
				if len(records) >= r.Count {
					enough()
				}
				mutex.Unlock()
				client.AllowRebalance()
			}
			commit(ctx, client, nil)
			client.CloseAllowingRebalance()
		}()
	}
	members.Wait()
	return records, failure
}

// settle waits until the brokers tell what was changed; Kafka answers before they all know.
func (d *driver) settle(ctx context.Context, topic string, partitions int) error {
	for i := 0; i < 200; i++ {
		details, err := d.admin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		if known := details[topic]; (known.Err != nil && partitions == 0) || (known.Err == nil && len(known.Partitions) == partitions) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (d *driver) describeTopic(ctx context.Context, topic string) (any, error) {
	details, err := d.admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := details[topic].Err; err != nil {
		return nil, err
	}
	partitions := []object{}
	for _, p := range details[topic].Partitions.Sorted() {
		partitions = append(partitions, object{"id": p.Partition, "leader": p.Leader, "replicas": p.Replicas, "isr": p.ISR})
	}
	return partitions, nil
}

func (d *driver) alterConfig(ctx context.Context, r request) error {
	changes := []kadm.AlterConfig{}
	for name, value := range r.Set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	for _, name := range r.Delete {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	answers, err := d.admin.AlterTopicConfigs(ctx, changes, r.Topic)
	if err != nil {
		return err
	}
	answer, err := answers.On(r.Topic, nil)
	if err != nil {
		return err
	}
	return answer.Err
}

func (d *driver) produce(ctx context.Context, r request) (any, error) {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(), "": kgo.NoCompression()}
	acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}
	options := []kgo.Opt{kgo.SeedBrokers(d.seeds...), kgo.ProducerBatchCompression(codecs[r.Compression]),
		kgo.RequiredAcks(acks[r.Acks]), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(20_000_000),
		kgo.BrokerMaxWriteBytes(100_000_000), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(20)}
	if r.Idempotent != nil && !*r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, given := range r.Records {
		sent := &kgo.Record{Topic: r.Topic, Partition: given.Partition, Key: bytesOf(given.Key), Value: bytesOf(given.Value)}
		if given.Timestamp != nil {
			sent.Timestamp = time.UnixMilli(*given.Timestamp)
		}
		for _, header := range given.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: *header[0], Value: bytesOf(header[1])})
		}
		records = append(records, sent)
	}
	done := client.ProduceSync(ctx, records...)
	offsets := []int64{}
	for _, sent := range records {
		offsets = append(offsets, sent.Offset)
	}
	return offsets, done.FirstErr()
}

func (d *driver) fetch(ctx context.Context, r request) (any, error) {
	from := map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: kgo.NewOffset().At(r.Offset)}}
	client, err := kgo.NewClient(kgo.SeedBrokers(d.seeds...), kgo.ConsumePartitions(from), kgo.FetchMaxPartitionBytes(20_000_000),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(500*time.Millisecond), isolation(r.Settings))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	records := []record{}
	for len(records) < r.Count {
		fetches := client.PollRecords(ctx, r.Count-len(records))
		if err := fetches.Err(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			return nil, err
		}
		fetches.EachRecord(func(got *kgo.Record) {
			stamp := got.Timestamp.UnixMilli()
			kind := "create"
			if got.Attrs.TimestampType() == 1 {
				kind = "append"
			}
			headers := [][2]*string{}
			for _, header := range got.Headers {
				name := header.Key
				headers = append(headers, [2]*string{&name, textOf(header.Value)})
			}
			records = append(records, record{Partition: got.Partition, Offset: got.Offset, Timestamp: &stamp, Type: kind,
				Key: textOf(got.Key), Value: textOf(got.Value), Headers: headers})
		})
	}
	return records, nil
}

func (d *driver) listOffset(ctx context.Context, r request) (any, error) {
	var answers kadm.ListedOffsets
	var err error
	switch r.Spec {
	case "earliest":
		answers, err = d.admin.ListStartOffsets(ctx, r.Topic)
	case "latest":
		answers, err = d.admin.ListEndOffsets(ctx, r.Topic)
	case "latest_committed":
		answers, err = d.admin.ListCommittedOffsets(ctx, r.Topic)
	case "max_timestamp":
		answers, err = d.admin.ListMaxTimestampOffsets(ctx, r.Topic)
	default:
		millis, failure := strconv.ParseInt(r.Spec, 10, 64)
		if failure != nil {
			return nil, failure
		}
		answers, err = d.admin.ListOffsetsAfterMilli(ctx, millis, r.Topic)
	}
	if err != nil {
		return nil, err
	}
	answer, _ := answers.Lookup(r.Topic, r.Partition)
	return answer.Offset, answer.Err
}

func main() {
	seeds := strings.Split(os.Args[1], ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	d := &driver{seeds: seeds, client: client, admin: kadm.NewClient(client), open: map[string]*kgo.Client{}}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		var r request
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		var answer any
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
			answer, err = d.carryOut(ctx, r)
			cancel()
		}
		if err != nil {
			name := "DRIVER"
			var known *kerr.Error
			if errors.As(err, &known) {
				name = known.Message
			}
			_ = out.Encode(object{"error": name, "text": err.Error()})
		} else {
			_ = out.Encode(object{"ok": answer})
		}
	}
}

// franz-go's producer after a transaction timeout. A line on stdin: KEY BOOTSTRAP TOPIC SCENARIO (the topic's name is the
// transactional id, too); lines on stdout: KEY STEP=OUTCOME, KEY end. SCENARIO: commit, produce, partition, abort, and
// burst, which has no transaction; or read:COUNT;SETTING=VALUE;...
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const timeout = time.Second

func main() {
	var running sync.WaitGroup
	var printing sync.Mutex
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		running.Add(1)
		go func() {
			defer running.Done()
			tell := func(text string) {
				printing.Lock()
				defer printing.Unlock()
				fmt.Println(words[0], text)
			}
			run := story
			if words[3] == "burst" {
				run = burst
			} else if strings.HasPrefix(words[3], "read:") {
				run = read
			}
			if err := run(words[1], words[2], words[3], tell); err != nil {
				tell("broken=" + strings.ReplaceAll(err.Error(), " ", "_"))
			}
			tell("end")
		}()
	}
	running.Wait()
}

func story(bootstrap, topic, scenario string, tell func(string)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(topic),
		kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	send := func(partition int32, value string) error {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
		return client.ProduceSync(ctx, record).FirstErr()
	}
	step := func(name string, action func() error) bool {
		err := action()
		tell(name + "=" + outcome(err))
		return err == nil
	}
	commit := func() error { return client.EndTransaction(ctx, kgo.TryCommit) }
	abort := func() error { return client.EndTransaction(ctx, kgo.TryAbort) }
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := send(0, "lost"); err != nil {
		return err
	}
	if err := awaitAbort(ctx, client, topic); err != nil {
		return err
	}
	switch scenario {
	case "produce":
		step("send", func() error { return send(0, "late") })
	case "partition":
		step("send", func() error { return send(1, "late") })
	}
	if scenario == "abort" || !step("commit", commit) {
		step("abort", abort)
	}
	for _, next := range []string{"t0", "t1"} {
		done := step(next, func() error {
			if err := client.BeginTransaction(); err != nil {
				return err
			}
			if err := send(0, next); err != nil {
				return err
			}
			return commit()
		})
		if !done {
			step("abort-"+next, abort)
		}
	}
	return nil
}

// burst sends three records one by one, then five at once, each a batch of its own, and one more.
func burst(bootstrap, topic, _ string, tell func(string)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(512),
		kgo.UnknownTopicRetries(-1),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	record := func(number int) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: 0, Value: []byte(fmt.Sprintf("r%d", number))}
	}
	for number := 0; number < 3; number++ {
		if err := client.ProduceSync(ctx, record(number)).FirstErr(); err != nil {
			return err
		}
	}
	tell("ready=")
	for {
		request := kmsg.NewMetadataRequest()
		name := topic + "-go"
		request.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		answer, err := request.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		if answer.Topics[0].ErrorCode == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	errors := make([]chan error, 5)
	for index := range errors {
		told := make(chan error, 1)
		errors[index] = told
		client.Produce(ctx, record(3+index), func(_ *kgo.Record, err error) { told <- err })
	}
	for index, told := range errors {
		tell(fmt.Sprintf("r%d=%s", 3+index, outcome(<-told)))
	}
	tell("r8=" + outcome(client.ProduceSync(ctx, record(8)).FirstErr()))
	return nil
}

// read tells each value of partition 0, from its beginning, and when it came.
func read(bootstrap, topic, scenario string, tell func(string)) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	told := strings.Split(strings.TrimPrefix(scenario, "read:"), ";")
	count, err := strconv.Atoi(told[0])
	if err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
	}
	for _, pair := range told[1:] {
		name, text, _ := strings.Cut(pair, "=")
		value, _ := strconv.Atoi(text)
		switch name {
		case "fetch.min.bytes":
			options = append(options, kgo.FetchMinBytes(int32(value)))
		case "fetch.max.bytes":
			options = append(options, kgo.FetchMaxBytes(int32(value)))
		case "max.partition.fetch.bytes":
			options = append(options, kgo.FetchMaxPartitionBytes(int32(value)))
		case "fetch.max.wait.ms":
			options = append(options, kgo.FetchMaxWait(time.Duration(value)*time.Millisecond))
		case "isolation.level":
			if text == "read_committed" {
				options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			}
		}
	}
	began := time.Now()
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	tell("ready=")
	var seen []string
	last := false
	for !last && len(seen) < count && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			seen = append(seen, fmt.Sprintf("%s:%d", record.Value, time.Now().UnixMilli()))
			last = string(record.Value) == "last"
		})
	}
	tell(fmt.Sprintf("us=%d", time.Since(began).Microseconds()))
	tell("read=" + strings.Join(seen, ","))
	return nil
}

// outcome is Kafka's name of an error, or what else it says.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	for _, known := range []*kerr.Error{
		kerr.TransactionAbortable, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidTxnState,
	} {
		if strings.Contains(err.Error(), known.Message) {
			return known.Message
		}
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

func awaitAbort(ctx context.Context, client *kgo.Client, id string) error {
	for {
		request := kmsg.NewDescribeTransactionsRequest()
		request.TransactionalIDs = []string{id}
		answer, err := request.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		if answer.TransactionStates[0].State == "CompleteAbort" {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// franz-go's producer after a transaction timeout. A line on stdin: KEY BOOTSTRAP TOPIC SCENARIO (the topic's name is the
// transactional id, too); lines on stdout: KEY STEP=OUTCOME, KEY end. SCENARIO: commit, produce, partition, abort.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
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
			if err := story(words[1], words[2], words[3], tell); err != nil {
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

package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// SubscriberConfig configures a [Subscriber].
type SubscriberConfig struct {
	// Brokers are the addresses, "host:port", of some brokers of the cluster. Required.
	Brokers []string
	// Group is the name of the consumer group. Required.
	Group string
	// Topics are the topics to read, from their beginning if the group is new. They must exist.
	// Required.
	Topics []string
	// Options configure the client: TLS, SASL, kgo.ConsumeResetOffset, logs. They cannot change how
	// records are committed. Of records published in transactions, only committed ones are read,
	// unless kgo.FetchIsolationLevel changes that.
	Options []kgo.Opt
	// Batch is the maximum number of records in one call of fn, over all partitions. Defaults to
	// 256.
	Batch int
}

// Subscriber receives the records of topics, as a member of a consumer group. It is safe for
// concurrent use: each Subscribe is another member.
type Subscriber struct {
	config SubscriberConfig
	away   adapter.Outage
}

// OnOutage implements broker.OutageNotifier. If no record arrives for 5 s, the brokers are polled;
// they are unavailable if none answers within 5 s.
func (s *Subscriber) OnOutage(f func(err error)) { s.away.OnOutage(f) }

const maxBatch = 10_000

// NewSubscriber makes a Subscriber. Subscribe connects and checks that the topics exist.
func NewSubscriber(config SubscriberConfig) (*Subscriber, error) {
	var errs []error
	if len(config.Brokers) == 0 {
		errs = append(errs, errors.New("kafka: SubscriberConfig.Brokers is required"))
	}
	if config.Group == "" {
		errs = append(errs, errors.New("kafka: SubscriberConfig.Group is required"))
	}
	if len(config.Topics) == 0 {
		errs = append(errs, errors.New("kafka: SubscriberConfig.Topics is required"))
	}
	if config.Batch == 0 {
		config.Batch = 256
	}
	if config.Batch < 1 || config.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("kafka: SubscriberConfig.Batch %d: 1 to %d is allowed", config.Batch, maxBatch))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Subscriber{config: config}, nil
}

// Subscribe implements broker.Subscriber. It commits offsets after fn. After an error of fn it
// waits, first 100 ms and at most 5 s, and delivers the batch again; later records of its
// partitions wait. The group does not rebalance while fn runs, so fn must return within the group's
// rebalance timeout of 60 s. Subscribe returns an error if a topic does not exist.
func (s *Subscriber) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	clientCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // of all that it asks the brokers
	defer cancel()
	// The wait of a fetch is what a batch that is read again may wait for, too. What was published
	// in a transaction counts once that is committed.
	options := append(
		[]kgo.Opt{kgo.SeedBrokers(s.config.Brokers...), kgo.FetchMaxWait(time.Second), kgo.FetchIsolationLevel(kgo.ReadCommitted())},
		s.config.Options...)
	options = append(options,
		kgo.WithContext(clientCtx),
		kgo.ConsumerGroup(s.config.Group),
		kgo.ConsumeTopics(s.config.Topics...),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return fmt.Errorf("kafka: subscribe group %q to topics %q: %w", s.config.Group, s.config.Topics, err)
	}
	defer leave(client, cancel)
	if err := s.lookUp(ctx, client); err != nil {
		return fmt.Errorf("kafka: subscribe group %q to topics %q: %w", s.config.Group, s.config.Topics, err)
	}
	failures := 0
	for ctx.Err() == nil {
		fetches := s.poll(ctx, client)
		if ctx.Err() != nil {
			break
		}
		if err := finalError(fetches); err != nil {
			return fmt.Errorf("kafka: subscribe group %q to topics %q: %w", s.config.Group, s.config.Topics, err)
		}
		records := fetches.Records()
		switch {
		case len(records) > 0 && s.hand(ctx, client, records, fn) == nil:
			failures = 0
		case len(records) > 0 || fetches.Err() != nil:
			failures++
			client.AllowRebalance()
			adapter.PauseAfter(ctx, failures)
		}
		client.AllowRebalance()
	}
	return nil
}

// commitTimeout is how long the group has to take the offsets of a batch, whatever ctx says.
const commitTimeout = 5 * time.Second

// hand gives a batch to fn, and commits it, or goes back to where it began.
func (s *Subscriber) hand(
	ctx context.Context, client *kgo.Client, records []*kgo.Record, fn func(context.Context, []broker.Record) error,
) error {
	given := make([]broker.Record, len(records))
	for i := range records {
		given[i] = record(records[i])
	}
	if err := fn(ctx, given); err != nil {
		client.SetOffsets(beginnings(records))
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	// What fails here is done by the next commit, or comes again.
	_ = client.CommitRecords(ctx, records...)
	return nil
}

// beginnings says where in each partition the records begin.
func beginnings(records []*kgo.Record) map[string]map[int32]kgo.EpochOffset {
	first := make(map[string]map[int32]kgo.EpochOffset)
	for _, r := range records {
		if first[r.Topic] == nil {
			first[r.Topic] = make(map[int32]kgo.EpochOffset)
		}
		if at, ok := first[r.Topic][r.Partition]; !ok || r.Offset < at.Offset {
			first[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset}
		}
	}
	return first
}

// leave leaves the group, so that it need not wait for the session to end, and closes the client.
// Brokers have a second to answer to that.
func leave(client *kgo.Client, cancel context.CancelFunc) {
	late := time.AfterFunc(time.Second, cancel)
	defer late.Stop()
	client.CloseAllowingRebalance()
}

// lookUp looks whether the topics exist, until the brokers answer.
func (s *Subscriber) lookUp(ctx context.Context, client *kgo.Client) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := s.lookOnce(ctx, client)
		if ctx.Err() == nil && !isFinal(err) {
			s.away.Note(err)
		}
		if err == nil || isFinal(err) && ctx.Err() == nil {
			return err
		}
		adapter.PauseAfter(ctx, failures)
	}
	return nil
}

// lookEvery is how long nothing has come when the brokers are asked whether they are there, and how
// long they have to answer: the client does not always say so by itself.
const lookEvery = 5 * time.Second

// poll waits for records, for an error, or until ctx ends.
func (s *Subscriber) poll(ctx context.Context, client *kgo.Client) kgo.Fetches {
	for {
		waiting, cancel := context.WithTimeout(ctx, lookEvery)
		fetches := client.PollRecords(waiting, s.config.Batch)
		late := waiting.Err() != nil
		cancel()
		if fetches.NumRecords() > 0 {
			s.away.Note(nil)
			return fetches
		}
		if ctx.Err() != nil || finalError(fetches) != nil {
			return fetches
		}
		client.AllowRebalance()
		waiting, cancel = context.WithTimeout(ctx, lookEvery)
		err := client.Ping(waiting)
		cancel()
		if ctx.Err() == nil {
			s.away.Note(err)
		}
		if !late {
			return fetches
		}
	}
}

func (s *Subscriber) lookOnce(ctx context.Context, client *kgo.Client) error {
	if err := client.Ping(ctx); err != nil { // which says at once what other requests try again, such as wrong credentials
		return err
	}
	request := kmsg.NewPtrMetadataRequest()
	for _, topic := range s.config.Topics {
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, one)
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for _, topic := range response.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil && topic.Topic != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", *topic.Topic, err))
		}
	}
	return errors.Join(errs...)
}

// finalError returns what is in the fetches that stays when one tries again.
func finalError(fetches kgo.Fetches) error {
	for _, fetch := range fetches.Errors() {
		if isFinal(fetch.Err) {
			return fmt.Errorf("topic %q: %w", fetch.Topic, fetch.Err)
		}
	}
	return nil
}

func isFinal(err error) bool {
	for _, final := range []error{
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed,
		kerr.GroupAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.InvalidGroupID, kgo.ErrClientClosed,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

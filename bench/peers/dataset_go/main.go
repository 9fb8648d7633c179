// Sends a file of events by dataset-go as fast as that goes, and prints one JSON line of figures.
//
// It is the peer of `make bench-delivery`. Each line of the file is an object of attributes.
// The lines are parsed by a goroutine of their own, ahead of the client, so that parsing, which is not the
// library's work, is not counted against it as long as there is a second core.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/scalyr/dataset-go/pkg/api/add_events"
	"github.com/scalyr/dataset-go/pkg/buffer_config"
	"github.com/scalyr/dataset-go/pkg/client"
	"github.com/scalyr/dataset-go/pkg/config"
	"github.com/scalyr/dataset-go/pkg/server_host_config"
	"go.uber.org/zap"
)

// figures is what is printed; the names are those of the other side's figures in bench/delivery.py.
type figures struct {
	Events          uint64  `json:"events"`
	Seconds         float64 `json:"seconds"`
	ShutdownSeconds float64 `json:"shutdown_seconds"`
	PeakRssBytes    int64   `json:"peak_rss_bytes"`
	Dropped         uint64  `json:"dropped"`
	Requests        uint64  `json:"requests"`
	Error           string  `json:"error"`
}

const severity = 3

func main() {
	file := flag.String("file", "", "NDJSON file of events")
	endpoint := flag.String("endpoint", "", "base URL of the server")
	groupBy := flag.String("group-by", "", "comma-separated attributes that make the session")
	batch := flag.Int("batch", 1000, "events per call of AddEvents")
	lifetime := flag.Duration("max-lifetime", 5*time.Second, "age at which a buffer that is not full is sent")
	patience := flag.Duration("shutdown-timeout", 10*time.Minute, "time for Shutdown to send what is left")
	flag.Parse()

	found, err := send(*file, *endpoint, strings.Split(*groupBy, ","), *batch, *lifetime, *patience)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}

func send(
	file, endpoint string, groupBy []string, batch int, lifetime, patience time.Duration,
) (*figures, error) {
	sender, err := connect(endpoint, groupBy, lifetime, patience)
	if err != nil {
		return nil, err
	}
	batches, failed := read(file, batch)

	began := time.Now()
	added := uint64(0)
	for bundles := range batches {
		for sender.AddEvents(bundles) != nil {
			// a whole batch is refused while the client is in error: its caller is meant to come again
			time.Sleep(10 * time.Millisecond)
		}
		added += uint64(len(bundles))
	}
	if err := <-failed; err != nil {
		return nil, err
	}

	delivered := make(chan time.Duration, 1)
	go watch(sender, added, began, delivered)
	shutdownBegan := time.Now()
	problem := sender.Shutdown()
	found := &figures{ShutdownSeconds: time.Since(shutdownBegan).Seconds()}
	select {
	case took := <-delivered:
		found.Seconds = took.Seconds()
	case <-time.After(time.Second):
		found.Seconds = time.Since(began).Seconds()
	}
	if problem != nil {
		found.Error = problem.Error()
	}
	numbers := sender.Statistics()
	found.Events = added
	found.Dropped = numbers.Events.Dropped() + numbers.Buffers.Dropped()
	found.Requests = numbers.Buffers.Processed()
	found.PeakRssBytes = peakRssBytes()
	return found, nil
}

// peakRssBytes is read from /proc and not by getrusage, whose figure begins with that of the parent process.
func peakRssBytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes := int64(0)
	_, _ = fmt.Sscan(after, &kilobytes)
	return kilobytes * 1024
}

func connect(
	endpoint string, groupBy []string, lifetime, patience time.Duration,
) (*client.DataSetClient, error) {
	buffers := buffer_config.NewDefaultDataSetBufferSettings()
	buffers.GroupBy = groupBy
	buffers.MaxLifetime = lifetime
	buffers.PurgeOlderThan = max(6*lifetime, buffers.PurgeOlderThan)
	buffers.RetryShutdownTimeout = patience
	// Shutdown looks whether it is done with the pauses of a retry; the shortest allowed favours the peer
	buffers.RetryInitialInterval = buffer_config.MinimalInitialInterval
	settings, err := config.New(
		config.WithEndpoint(endpoint),
		config.WithTokens(config.DataSetTokens{WriteLog: "bench"}),
		config.WithBufferSettings(buffers),
		config.WithServerHostSettings(server_host_config.NewDefaultDataSetServerHostSettings()),
	)
	if err != nil {
		return nil, err
	}
	return client.NewClient(settings, &http.Client{}, zap.NewNop(), nil, nil)
}

// watch tells when the last buffer was answered, which is earlier than Shutdown notices.
func watch(sender *client.DataSetClient, added uint64, began time.Time, delivered chan<- time.Duration) {
	for {
		numbers := sender.Statistics()
		buffers := numbers.Buffers
		isSent := buffers.Enqueued() == buffers.Processed()+buffers.Dropped()
		if numbers.Events.Processed() >= added && isSent {
			delivered <- time.Since(began)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func read(file string, batch int) (<-chan []*add_events.EventBundle, <-chan error) {
	batches := make(chan []*add_events.EventBundle, 4)
	failed := make(chan error, 1)
	go func() {
		defer close(batches)
		failed <- parse(file, batch, batches)
	}()
	return batches, failed
}

func parse(file string, batch int, batches chan<- []*add_events.EventBundle) error {
	source, err := os.Open(file)
	if err != nil {
		return err
	}
	defer source.Close()
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, 16*1024*1024)
	bundles := make([]*add_events.EventBundle, 0, batch)
	for lines.Scan() {
		var attrs add_events.EventAttrs
		if err := json.Unmarshal(lines.Bytes(), &attrs); err != nil {
			return err
		}
		now := strconv.FormatInt(time.Now().UnixNano(), 10)
		event := &add_events.Event{Ts: now, Sev: severity, Attrs: attrs}
		bundles = append(bundles, &add_events.EventBundle{Event: event})
		if len(bundles) == batch {
			batches <- bundles
			bundles = make([]*add_events.EventBundle, 0, batch)
		}
	}
	if len(bundles) > 0 {
		batches <- bundles
	}
	return lines.Err()
}

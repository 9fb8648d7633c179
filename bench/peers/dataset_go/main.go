// Sends a file of events by dataset-go as fast as that goes, and prints one JSON line of figures.
//
// It is the peer of `make bench-delivery`. Each line of the file is an object of attributes; with -bundles it
// is a whole bundle, for the test that compares requests. The lines are parsed by a goroutine of their own, ahead of the client, so that parsing, which is not the
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
	bundles := flag.Bool("bundles", false, "each line is a bundle: {event, serverHost, thread, log}")
	serverHost := flag.String("server-host", "", "host of events that have none; empty: this machine's name")
	suffix := flag.String("user-agent-suffix", "", "end of the User-Agent")
	patience := flag.Duration("shutdown-timeout", 10*time.Minute, "time for Shutdown to send what is left")
	flag.Parse()

	names := strings.FieldsFunc(*groupBy, func(letter rune) bool { return letter == ',' })
	sender, err := connect(*endpoint, names, *lifetime, *patience, *serverHost, *suffix)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	found, err := send(sender, *file, *batch, *bundles)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}

func send(sender *client.DataSetClient, file string, batch int, whole bool) (*figures, error) {
	batches, failed := read(file, batch, whole)

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
	endpoint string, groupBy []string, lifetime, patience time.Duration, serverHost, suffix string,
) (*client.DataSetClient, error) {
	buffers := buffer_config.NewDefaultDataSetBufferSettings()
	buffers.GroupBy = groupBy
	buffers.MaxLifetime = lifetime
	buffers.PurgeOlderThan = max(6*lifetime, buffers.PurgeOlderThan)
	buffers.RetryShutdownTimeout = patience
	// Shutdown looks whether it is done with the pauses of a retry; the shortest allowed favours the peer
	buffers.RetryInitialInterval = buffer_config.MinimalInitialInterval
	hosts := server_host_config.NewDefaultDataSetServerHostSettings()
	hosts.ServerHost = serverHost
	settings, err := config.New(
		config.WithEndpoint(endpoint),
		config.WithTokens(config.DataSetTokens{WriteLog: "bench"}),
		config.WithBufferSettings(buffers),
		config.WithServerHostSettings(hosts),
	)
	if err != nil {
		return nil, err
	}
	return client.NewClient(settings, &http.Client{}, zap.NewNop(), &suffix, nil)
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

func read(file string, batch int, whole bool) (<-chan []*add_events.EventBundle, <-chan error) {
	batches := make(chan []*add_events.EventBundle, 4)
	failed := make(chan error, 1)
	go func() {
		defer close(batches)
		failed <- parse(file, batch, whole, batches)
	}()
	return batches, failed
}

// bundle is a line of the file with -bundles; Event.ServerHost has no name in JSON.
type bundle struct {
	Event      *add_events.Event  `json:"event"`
	ServerHost string             `json:"serverHost"`
	Thread     *add_events.Thread `json:"thread"`
	Log        *add_events.Log    `json:"log"`
}

func parseLine(line []byte, whole bool) (*add_events.EventBundle, error) {
	if whole {
		var found bundle
		if err := json.Unmarshal(line, &found); err != nil {
			return nil, err
		}
		found.Event.ServerHost = found.ServerHost
		return &add_events.EventBundle{Event: found.Event, Thread: found.Thread, Log: found.Log}, nil
	}
	var attrs add_events.EventAttrs
	if err := json.Unmarshal(line, &attrs); err != nil {
		return nil, err
	}
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	event := &add_events.Event{Ts: now, Sev: severity, Attrs: attrs}
	return &add_events.EventBundle{Event: event}, nil
}

func parse(file string, batch int, whole bool, batches chan<- []*add_events.EventBundle) error {
	source, err := os.Open(file)
	if err != nil {
		return err
	}
	defer source.Close()
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, 16*1024*1024)
	bundles := make([]*add_events.EventBundle, 0, batch)
	for lines.Scan() {
		next, err := parseLine(lines.Bytes(), whole)
		if err != nil {
			return err
		}
		bundles = append(bundles, next)
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

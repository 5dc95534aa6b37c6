// Package main is a web server that answers each request, as the container of a Knative Service.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	port, answer := os.Getenv("PORT"), os.Getenv("ANSWER")
	if port == "" {
		port = "8080"
	}
	if answer == "" {
		answer = "hello"
	}
	code := http.StatusOK
	if number, err := strconv.Atoi(os.Getenv("CODE")); err == nil {
		code = number
	}
	// The last events.
	var lock sync.Mutex
	var events []string
	http.HandleFunc("/events", func(response http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprintln(response, strings.Join(events, "\n"))
	})
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		// A request may ask for work, so that autoscaling has something to do.
		if work, err := time.ParseDuration(request.URL.Query().Get("work")); err == nil {
			time.Sleep(work)
		}
		// The log has what it got, such as an event.
		body, err := io.ReadAll(io.LimitReader(request.Body, 1<<16))
		id := request.Header.Get("Ce-Id")
		if err == nil && len(body) > 0 {
			log.Printf("got %s %s: %s", request.Header.Get("Ce-Type"), id, body)
		}
		if id != "" {
			lock.Lock()
			events = append(events[max(0, len(events)-9):], id)
			lock.Unlock()
			// A response with content would have to be another event: a Trigger sends it again.
			response.WriteHeader(http.StatusAccepted)
			return
		}
		response.WriteHeader(code)
		fmt.Fprintln(response, answer)
	})
	log.Fatal(http.ListenAndServe(":"+port, nil))
}

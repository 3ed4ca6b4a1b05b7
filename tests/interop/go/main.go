// Command clients drives one Go library for Kafka: one order a line on stdin, one answer a line on stdout, both JSON.
//
//	clients franz-go|sarama|kafka-go ADDRESS [VERSION]
//
// VERSION is the broker's, which sarama wants to be told; it has a default, and the others find out by themselves.
// The first line says {"version": ...}.  An answer is {"ok": ...}, or {"error": {"text": ..., "code": ...}} with what
// the library's user would see; the code is the protocol's, or null where the library gave none.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
)

type library struct {
	module  string
	connect func(address, version string) (Client, error)
}

var libraries = map[string]library{
	"franz-go": {"github.com/twmb/franz-go", newFranz},
	"sarama":   {"github.com/IBM/sarama", newSarama},
	"kafka-go": {"github.com/segmentio/kafka-go", newSegmentio},
}

type failure struct {
	Text string `json:"text"`
	Code *int16 `json:"code"`
}

type answer struct {
	Ok    any      `json:"ok"`
	Error *failure `json:"error,omitempty"`
}

const lineBytesMax = 64 << 20

func main() {
	arguments := append(os.Args[1:], "", "", "")
	chosen, ok := libraries[arguments[0]]
	if !ok || arguments[1] == "" {
		fmt.Fprintln(os.Stderr, "usage: clients franz-go|sarama|kafka-go ADDRESS [VERSION]")
		os.Exit(2)
	}
	client, err := chosen.connect(arguments[1], arguments[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	desk := newDesk(client)
	out := json.NewEncoder(os.Stdout)
	write(out, map[string]string{"version": versionOf(chosen.module)})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		write(out, answerTo(desk, lines.Bytes()))
	}
}

func write(out *json.Encoder, value any) {
	if err := out.Encode(value); err != nil {
		panic(err)
	}
}

func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return ""
}

func answerTo(desk *desk, line []byte) answer {
	var order Order
	if err := json.Unmarshal(line, &order); err != nil {
		return answer{Error: &failure{Text: err.Error()}}
	}
	result, err := desk.carryOut(order)
	if err != nil {
		return answer{Error: &failure{Text: err.Error(), Code: protocolCode(err)}}
	}
	return answer{Ok: result}
}

func protocolCode(err error) *int16 {
	var ofFranz *kerr.Error
	var ofSarama sarama.KError
	var ofSegmentio kafka.Error
	var code int16
	switch {
	case errors.As(err, &ofFranz):
		code = ofFranz.Code
	case errors.As(err, &ofSarama):
		code = int16(ofSarama)
	case errors.As(err, &ofSegmentio):
		code = int16(ofSegmentio)
	default:
		return nil
	}
	return &code
}

// Package main prints what GitOps tools see of resources.
//
// It reads one resource in JSON from each line of stdin, and writes one line for each:
// {"argo": HEALTH, "own": HEALTH, "message": TEXT, "kstatus": STATUS}, with "error": MESSAGE if
// something failed. "argo" is the health by Argo CD's own script ("" if it has none, which counts as
// Healthy there), "own" and "message" are what the script in the file --script returns, and
// "kstatus" is the result of kstatus.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/argoproj/argo-cd/v3/resource_customizations"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Result is a line of the output.
type Result struct {
	Argo    string `json:"argo"`
	Own     string `json:"own"`
	Message string `json:"message"`
	Kstatus string `json:"kstatus"`
	Error   string `json:"error,omitempty"`
}

func main() {
	script := flag.String("script", "", "file with the Lua script for \"own\"")
	flag.Parse()
	if err := run(*script); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string) error {
	own, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answer := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		result, err := examine(lines.Bytes(), string(own))
		if err != nil {
			result = Result{Error: err.Error()}
		}
		if err := answer.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

// examine returns the results for the resource in line.
func examine(line []byte, own string) (Result, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(line); err != nil {
		return Result{}, err
	}
	var result Result
	kind := object.GroupVersionKind()
	builtIn, err := resource_customizations.Embedded.ReadFile(kind.Group + "/" + kind.Kind + "/health.lua")
	if err == nil {
		// Argo CD opens all libraries for its own scripts only.
		result.Argo, _, err = health(object, string(builtIn), true)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return Result{}, err
	}
	if result.Own, result.Message, err = health(object, own, false); err != nil {
		return Result{}, err
	}
	computed, err := status.Compute(object)
	if err != nil {
		return Result{}, err
	}
	result.Kstatus = string(computed.Status)
	return result, nil
}

// health returns the health of object by script, and its message, as Argo CD computes it: a resource that is being
// deleted is Progressing, and a script has a second, and the base and table libraries unless all
// are open.
func health(object *unstructured.Unstructured, script string, all bool) (string, string, error) {
	if object.GetDeletionTimestamp() != nil {
		return "Progressing", "Pending deletion", nil
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: !all})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", value(state, object.Object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	answer, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", errors.New("the script returns no table")
	}
	found := answer.RawGetString("status").String()
	switch found {
	case "Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown":
		return found, lua.LVAsString(answer.RawGetString("message")), nil
	}
	return "", "", fmt.Errorf("the script returns status %q", found)
}

// value returns a JSON value for Lua.
func value(state *lua.LState, content any) lua.LValue {
	switch content := content.(type) {
	case bool:
		return lua.LBool(content)
	case float64:
		return lua.LNumber(content)
	case int64:
		return lua.LNumber(content)
	case string:
		return lua.LString(content)
	case []any:
		table := state.CreateTable(len(content), 0)
		for _, item := range content {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(content))
		for key, item := range content {
			table.RawSetString(key, value(state, item))
		}
		return table
	}
	return lua.LNil
}

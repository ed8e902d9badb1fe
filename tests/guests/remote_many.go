// Many goroutines that work on files in the current directory, with children, timers and signals meanwhile. What it finds wrong it says,
// and ends with 1. What it leaves is the same each time. With "long" it goes on for longer,
// without children and locks, and ends when its input does.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const workers = 24

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		panic(err)
	}
}

func check(right bool, what ...any) {
	if !right {
		fmt.Fprintln(os.Stderr, append([]any{"wrong:"}, what...)...)
		os.Exit(1)
	}
}

func work(me, rounds int, long bool, together *os.File) {
	folder := fmt.Sprintf("of-%d", me)
	must(os.Mkdir(folder, 0o755))
	for round := 0; round < rounds; round++ {
		name := filepath.Join(folder, fmt.Sprint(round%7))
		text := strings.Repeat(fmt.Sprintf("%d %d\n", me, round), 50)
		must(os.WriteFile(name+".new", []byte(text), 0o644))
		must(os.Rename(name+".new", name))
		found, err := os.ReadFile(name)
		must(err)
		check(string(found) == text, name, "holds", len(found), "bytes")
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		must(err)
		_, err = file.WriteAt([]byte("HERE"), 3)
		must(err)
		part := make([]byte, 6)
		_, err = file.ReadAt(part, 2)
		must(err)
		check(string(part[1:5]) == "HERE", name, part)
		must(file.Close())
		_, err = fmt.Fprintf(together, "%02d %03d\n", me, round)
		must(err)
		if round%5 == 4 {
			must(os.Remove(name))
			_, err = os.Stat(name)
			check(os.IsNotExist(err), name, err)
		}
		entries, err := os.ReadDir(folder)
		must(err)
		check(len(entries) <= 7, folder, len(entries))
		_, err = os.Open(filepath.Join(folder, "none"))
		check(os.IsNotExist(err), err)
		// Of many threads that lock while their job is restarted one may be refused (docs/CALLS.md).
		if round%10 == 0 && !long {
			locked(folder)
		}
		garbage := make([]byte, 1<<16)
		garbage[round] = 1
	}
}

func locked(folder string) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	must(err)
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	must(syscall.FcntlFlock(file.Fd(), syscall.F_SETLKW, &lock))
	must(syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	must(file.Close())
}

// Goroutines that end with their threads.
func ending(count int) {
	for one := 0; one < count; one++ {
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			_, err := os.Stat("together")
			done <- err
		}()
		must(<-done)
	}
}

func children(rounds int) {
	self, err := os.Executable()
	must(err)
	for round := 0; round < rounds; round++ {
		child := exec.Command(self, "child", fmt.Sprintf("child-%d", round))
		child.Stdin = strings.NewReader("to the child")
		out, err := child.CombinedOutput()
		check(err == nil && string(out) == "read 12", "a child:", err, string(out))
		cat := exec.Command("/bin/cat", fmt.Sprintf("child-%d", round))
		out, err = cat.Output()
		check(err == nil && string(out) == "to the child", "cat:", err, string(out))
	}
	_, err = exec.Command("./none").Output()
	check(os.IsNotExist(err), err)
}

func child(name string) {
	text, err := io.ReadAll(os.Stdin)
	must(err)
	must(os.WriteFile(name, text, 0o600))
	fmt.Printf("read %d", len(text))
}

func main() {
	if len(os.Args) == 3 {
		child(os.Args[2])
		return
	}
	rounds := 20
	long := len(os.Args) == 2
	if long {
		rounds = 60
	}
	signals := make(chan os.Signal, 100)
	signal.Notify(signals, syscall.SIGUSR1)
	var seen, ticks atomic.Int64
	go func() {
		for range signals {
			seen.Add(1)
		}
	}()
	ticker := time.NewTicker(time.Millisecond)
	go func() {
		for range ticker.C {
			ticks.Add(1)
			syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			if ticks.Load()%20 == 0 {
				runtime.GC()
			}
		}
	}()
	together, err := os.OpenFile("together", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	must(err)
	var all sync.WaitGroup
	for me := 0; me < workers; me++ {
		all.Add(1)
		go func(me int) {
			defer all.Done()
			work(me, rounds, long, together)
		}(me)
	}
	// A job of several processes cannot be carried.
	if !long {
		all.Add(1)
		go func() {
			defer all.Done()
			children(8)
		}()
	}
	all.Add(1)
	go func() {
		defer all.Done()
		ending(10 * rounds)
	}()
	all.Wait()
	ticker.Stop()
	must(together.Close())
	text, err := os.ReadFile("together")
	must(err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	check(len(lines) == workers*rounds+1, "lines:", len(lines))
	sort.Slice(lines, func(one, other int) bool { return bytes.Compare(lines[one], lines[other]) < 0 })
	must(os.WriteFile("together", bytes.Join(lines, nil), 0o644))
	check(ticks.Load() > 3 && seen.Load() > 3, "ticks:", ticks.Load(), "signals:", seen.Load())
	fmt.Println("the end")
	if long {
		_, err = io.Copy(io.Discard, os.Stdin)
		must(err)
	}
}

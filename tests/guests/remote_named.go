// Sockets and FIFOs with names in the current directory, by goroutines that wait for each other.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func streams() {
	listener, err := net.Listen("unix", "socket")
	must(err)
	fmt.Println(listener.Addr())
	_, err = net.Listen("unix", "socket")
	fmt.Println(err)
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		all.Add(2)
		go func() {
			defer all.Done()
			one, err := listener.Accept()
			must(err)
			line, err := bufio.NewReader(one).ReadString('\n')
			must(err)
			fmt.Fprint(one, "back: ", line)
			one.Close()
		}()
		go func(i int) {
			defer all.Done()
			one, err := net.Dial("unix", "socket")
			must(err)
			if one.RemoteAddr().String() != "socket" {
				fmt.Println("wrong:", one.RemoteAddr())
			}
			fmt.Fprintf(one, "from %d\n", i)
			answer, err := io.ReadAll(one)
			must(err)
			if string(answer) != fmt.Sprintf("back: from %d\n", i) {
				fmt.Println("wrong:", string(answer))
			}
			one.Close()
		}(i)
	}
	all.Wait()
	// It removes the name.
	must(listener.Close())
	_, err = net.Dial("unix", "socket")
	fmt.Println(err)
}

func datagrams() {
	address := &net.UnixAddr{Name: "./one", Net: "unixgram"}
	one, err := net.ListenUnixgram("unixgram", address)
	must(err)
	two, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "two", Net: "unixgram"})
	must(err)
	file, err := os.Create("sent")
	must(err)
	_, _, err = two.WriteMsgUnix([]byte("hello"), syscall.UnixRights(int(file.Fd())), address)
	must(err)
	file.Close()
	data, control := make([]byte, 10), make([]byte, 100)
	n, m, _, from, err := one.ReadMsgUnix(data, control)
	must(err)
	messages, err := syscall.ParseSocketControlMessage(control[:m])
	must(err)
	rights, err := syscall.ParseUnixRights(&messages[0])
	must(err)
	received := os.NewFile(uintptr(rights[0]), "received")
	_, err = received.WriteString("by another descriptor\n")
	must(err)
	must(received.Close())
	text, err := os.ReadFile("sent")
	fmt.Println(string(data[:n]), from, string(text), err)
	one.Close()
	two.Close()
	os.Remove("one")
	os.Remove("two")
}

func fifos() {
	must(syscall.Mkfifo("fifo", 0o600))
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		writer, err := os.OpenFile("fifo", os.O_WRONLY, 0)
		must(err)
		for i := 0; i < 2000; i++ {
			fmt.Fprintf(writer, "line %d\n", i)
		}
		must(writer.Close())
	}()
	reader, err := os.Open("fifo")
	must(err)
	status, err := reader.Stat()
	must(err)
	data, err := io.ReadAll(reader)
	must(err)
	fmt.Println(len(data), status.Mode())
	all.Wait()
	must(os.Remove("fifo"))
}

func main() {
	streams()
	datagrams()
	fifos()
}

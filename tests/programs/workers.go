// Goroutines, channels, maps and the garbage collector.
package main

import (
	"crypto/sha256"
	"fmt"
	"sort"
	"sync"
	"time"
)

type result struct {
	index int
	sum   [32]byte
}

func work(index int) result {
	data := make(map[int][]byte)
	for i := 0; i < 20000; i++ {
		data[i*index%7919] = append(data[i*index%7919], byte(i))
	}
	keys := make([]int, 0, len(data))
	for key := range data {
		keys = append(keys, key)
	}
	sort.Ints(keys)
	hash := sha256.New()
	for _, key := range keys {
		hash.Write(data[key])
	}
	var sum [32]byte
	copy(sum[:], hash.Sum(nil))
	return result{index, sum}
}

func main() {
	total := sha256.New()
	for turn := 0; turn < 12; turn++ {
		tasks, results := make(chan int), make(chan result)
		var group sync.WaitGroup
		for worker := 0; worker < 4; worker++ {
			group.Add(1)
			go func() {
				defer group.Done()
				for index := range tasks {
					results <- work(index)
				}
			}()
		}
		go func() {
			for index := 1; index <= 60; index++ {
				tasks <- turn*100 + index
			}
			close(tasks)
			group.Wait()
			close(results)
		}()
		all := make([]result, 0, 60)
		for one := range results {
			all = append(all, one)
		}
		sort.Slice(all, func(a, b int) bool { return all[a].index < all[b].index })
		for _, one := range all {
			total.Write(one.sum[:])
		}
		select {
		case <-time.After(5 * time.Millisecond):
		}
		fmt.Printf("%d %x\n", turn, total.Sum(nil)[:8])
	}
	fmt.Printf("end %x\n", total.Sum(nil))
}

// C++: exceptions, iostreams, containers, threads with condition variables.
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

static std::mutex mutex;
static std::condition_variable changed;
static std::deque<int> queue;
static bool done;

static bool go() {
    const char *path = std::getenv("WF_GO");
    return !path || access(path, F_OK) == 0;
}

int main() {
    std::map<std::string, long> counts;
    std::thread consumer([&] {
        std::unique_lock<std::mutex> lock(mutex);
        while (true) {
            changed.wait(lock, [] { return done || !queue.empty(); });
            if (queue.empty())
                return;
            try {
                int value = queue.front();
                queue.pop_front();
                counts["seen"]++;
                if (value % 3 == 0)
                    throw std::runtime_error(std::to_string(value));
                counts["sum"] += value;
            } catch (const std::runtime_error &error) {
                counts["thrown"] += std::stol(error.what());
            }
        }
    });
    std::cout << "READY" << std::endl;
    long sum = 0, thrown = 0, seen = 0;
    for (int value = 0; value < 2000 || !go(); value = (value + 1) % 1000000) {
        std::lock_guard<std::mutex> lock(mutex);
        queue.push_back(value);
        seen++;
        (value % 3 == 0 ? thrown : sum) += value;
        changed.notify_one();
        if (value % 50 == 0)
            usleep(100);
        if (seen > 500000000)
            break;
    }
    {
        std::lock_guard<std::mutex> lock(mutex);
        done = true;
    }
    changed.notify_one();
    consumer.join();
    if (counts["seen"] != seen || counts["sum"] != sum || counts["thrown"] != thrown) {
        std::cout << "FAIL: counts: found " << counts["seen"] << ", expected " << seen << std::endl;
        return 1;
    }
    std::cout << "PASS" << std::endl;
}

// Ranges of objects fetched over connections of our own, many at once, by one thread that waits for all of them (epoll).
//
// It knows one thing: GET a range, and have the answer in memory if it is exactly what was asked for. All else (redirects,
// chunks, refusals, a connection that breaks) is told as a failure, and whoever asked goes another way. Servers without
// TLS only.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "answer.h"
#include "memory.h"

namespace fl::net {

// What connect() takes, without the headers of the system, whose names are everybody's.
struct Address {
    alignas(8) std::array<unsigned char, 32> bytes{};
    unsigned size = 0;
    int family = 0;
};

// A numeric IPv4 or IPv6 address; throws std::invalid_argument.
Address address_of(const std::string& host, std::uint16_t port);

struct Told {
    std::uint64_t ticket = 0;
    Answer answer;  // with `wrong` where it failed
    bool unheard = false;  // the server had closed a connection before this was sent over it, or just then
    std::shared_ptr<const std::uint8_t> body;
};

class Client {
public:
    static constexpr std::size_t kMostConnections = 256;

    Client();   // starts the thread
    ~Client();  // ends it; what is under way is never told
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // The number by which requests name a server. Its addresses are tried in turn.
    std::size_t add_server(std::vector<Address> addresses);
    void move_server(std::size_t server, std::vector<Address> addresses);

    // Sends `request`, a whole head, and has the answer told.
    std::uint64_t ask(std::size_t server, std::string request, const Span& wanted);
    // Nobody wants it any more. It may have been told already.
    void call_off(std::uint64_t ticket);

    // What came since the last call; waits for something, at most so long, or until `wake`.
    std::vector<Told> take(int milliseconds);
    void wake();

    // In a forked child: lets go of the parent's sockets, and touches nothing that the parent's thread may have held.
    void abandon() noexcept;

    // For tests and counts.
    std::size_t connections() const { return open_connections_.load(std::memory_order_relaxed); }
    std::uint64_t opened() const { return opened_.load(std::memory_order_relaxed); }
    std::size_t idle_bytes() const { return memory_->idle_bytes(); }

private:
    using Clock = std::chrono::steady_clock;
    struct Job {
        std::uint64_t ticket = 0;
        std::size_t server = 0;
        std::string request;
        Span wanted;
    };
    struct Connection;
    struct Server {
        std::vector<Address> addresses;
        std::size_t preferred = 0;  // the one that answered last
        std::uint64_t moved = 0;
        std::size_t connections = 0;
        std::deque<Job> waiting;
        std::vector<std::size_t> idle;  // connections, the one used last at the end
    };

    void run();
    void obey();
    void assign();
    bool assign_one(Server& server);
    void start(Job job, std::size_t slot);
    bool open(Connection& connection);
    void send(Connection& connection);
    void happened(std::uint64_t tag, std::uint32_t events);
    void receive(Connection& connection);
    bool receive_head(Connection& connection);
    void receive_body(Connection& connection);
    void finish(Connection& connection);
    void fail(Connection& connection, std::string why);
    void connect_failed(Connection& connection);
    void close(Connection& connection);
    void park(Connection& connection);
    void watch(Connection& connection, std::uint32_t events);
    void low_water(Connection& connection, std::size_t bytes);
    bool is_fresh(const Connection& connection) const;
    void tidy(Clock::time_point now);
    void publish();
    void signal();

    const std::shared_ptr<Memory> memory_ = Memory::make();
    int epoll_ = -1;
    int wakeup_ = -1;
    std::array<std::atomic<int>, kMostConnections> sockets_;  // read by `abandon`, which can take no lock
    std::atomic<std::size_t> open_connections_{0};
    std::atomic<std::uint64_t> opened_{0};

    // Shared with other threads.
    std::mutex mutex_;
    std::condition_variable came_;
    std::vector<Job> asked_;
    std::vector<std::uint64_t> called_off_;
    std::vector<std::pair<std::size_t, std::vector<Address>>> moved_;
    std::vector<Told> told_;
    std::size_t servers_known_ = 0;
    std::uint64_t next_ticket_ = 1;
    std::uint64_t wakes_ = 0;
    std::uint64_t wakes_seen_ = 0;  // one that came while nobody waited counts, too
    bool signalled_ = false;
    bool ending_ = false;

    // The thread's own.
    std::vector<std::unique_ptr<Connection>> connections_;  // by slot; null where there is none
    std::unordered_map<std::uint64_t, std::size_t> under_way_;  // slots by ticket
    std::vector<Server> servers_;
    std::vector<Told> done_;
    std::uint32_t generation_ = 0;
    Clock::time_point tidied_{};

    std::thread thread_;
};

}  // namespace fl::net

#include "client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace fl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kHead = 8192;            // bytes of an answer before its body, at most
constexpr std::size_t kAtOnce = 512 << 10;     // of a long body, so many are waited for before they are copied
constexpr std::size_t kWorthWaiting = 4096;    // fewer are copied when they come
constexpr auto kIdle = seconds(10);            // a connection that nobody needs is closed
constexpr auto kConnecting = seconds(10);
constexpr auto kConnectingFirst = seconds(1);  // where there is another address to be tried
constexpr auto kUnused = seconds(5);           // memory that nobody needs is given back
constexpr auto kPeriod = seconds(1);
constexpr std::uint64_t kWakeup = ~std::uint64_t{0};

enum class State : std::uint8_t { connecting, sending, head, body, idle };

[[noreturn]] void refuse(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

Address address_of(const std::string& host, std::uint16_t port) {
    Address made;
    const auto keep = [&](const auto& address, int family) {
        static_assert(sizeof address <= sizeof made.bytes);
        std::memcpy(made.bytes.data(), &address, sizeof address);
        made.size = sizeof address;
        made.family = family;
    };
    sockaddr_in four{};
    sockaddr_in6 six{};
    if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) {
        four.sin_family = AF_INET;
        four.sin_port = htons(port);
        keep(four, AF_INET);
    } else if (inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) == 1) {
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(port);
        keep(six, AF_INET6);
    } else {
        throw std::invalid_argument(host + " is no address");
    }
    return made;
}

struct Client::Connection {
    std::size_t slot = 0;
    std::uint64_t tag = 0;  // slot and generation: an event of one that was closed meanwhile is nobody's
    int socket = -1;
    State state = State::connecting;
    std::uint32_t watched = 0;
    std::size_t low_water = 1;
    bool used = false;  // it has brought an answer before
    std::size_t address = 0;
    std::size_t tried = 0;
    std::uint64_t moved = 0;  // of the server, when it was opened
    Clock::time_point since{};
    Job job;
    std::size_t sent = 0;
    std::array<char, kHead> head;
    std::size_t head_size = 0;
    Answer answer;
    std::shared_ptr<std::uint8_t> body;
    std::size_t have = 0;
};

Client::Client() {
    for (auto& socket : sockets_) socket.store(-1, std::memory_order_relaxed);
    connections_.resize(kMostConnections);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) refuse("epoll");
    wakeup_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeup}};
    if (wakeup_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wakeup_, &event) != 0) {
        const int error = errno;
        ::close(epoll_);
        if (wakeup_ >= 0) ::close(wakeup_);
        errno = error;
        refuse("eventfd");
    }
    // Signals are for the threads of the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { run(); });
        pthread_setname_np(thread_.native_handle(), "fastloader-net");
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        ::close(epoll_);
        ::close(wakeup_);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Client::~Client() {
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    signal();
    thread_.join();
    for (auto& connection : connections_)
        if (connection) close(*connection);
    ::close(wakeup_);
    ::close(epoll_);
}

void Client::abandon() noexcept {
    for (auto& socket : sockets_) {
        const int mine = socket.exchange(-1);
        if (mine >= 0) ::close(mine);
    }
    ::close(epoll_);
    ::close(wakeup_);
}

std::size_t Client::add_server(std::vector<Address> addresses) {
    std::lock_guard lock(mutex_);
    moved_.emplace_back(servers_known_, std::move(addresses));
    return servers_known_++;
}

void Client::move_server(std::size_t server, std::vector<Address> addresses) {
    std::lock_guard lock(mutex_);
    if (server >= servers_known_) throw std::out_of_range("no such server");
    moved_.emplace_back(server, std::move(addresses));
}

std::uint64_t Client::ask(std::size_t server, std::string request, const Span& wanted) {
    std::uint64_t ticket = 0;
    {
        std::lock_guard lock(mutex_);
        if (server >= servers_known_) throw std::out_of_range("no such server");
        ticket = next_ticket_++;
        asked_.push_back({ticket, server, std::move(request), wanted});
    }
    signal();
    return ticket;
}

void Client::call_off(std::uint64_t ticket) {
    {
        std::lock_guard lock(mutex_);
        called_off_.push_back(ticket);
    }
    signal();
}

void Client::signal() {
    {
        std::lock_guard lock(mutex_);
        if (std::exchange(signalled_, true)) return;
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wakeup_, &one, sizeof one);
}

std::vector<Told> Client::take(int limit) {
    std::vector<Told> taken;
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, milliseconds(limit), [&] { return !told_.empty() || wakes_ != wakes_seen_; });
    wakes_seen_ = wakes_;
    taken.swap(told_);
    return taken;
}

void Client::wake() {
    {
        std::lock_guard lock(mutex_);
        ++wakes_;
    }
    came_.notify_all();
}

void Client::run() {
    std::array<epoll_event, 64> events;
    bool busy = false;
    while (true) {
        const int limit = busy ? static_cast<int>(milliseconds(kPeriod).count()) : -1;
        const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), limit);
        bool woken = false;
        for (int i = 0; i < count; ++i) {
            if (events[i].data.u64 == kWakeup)
                woken = true;
            else
                happened(events[i].data.u64, events[i].events);
        }
        if (woken) {
            std::uint64_t ignored = 0;
            [[maybe_unused]] const auto got = read(wakeup_, &ignored, sizeof ignored);
            {
                std::lock_guard lock(mutex_);
                signalled_ = false;
                if (ending_) return;
            }
            obey();
        }
        assign();
        publish();
        const auto now = Clock::now();
        if (now - tidied_ >= kPeriod) {
            tidy(now);
            assign();  // closed ones make room
            publish();
        }
        busy = open_connections_.load(std::memory_order_relaxed) > 0 || memory_->in_use();
    }
}

void Client::obey() {
    std::vector<Job> asked;
    std::vector<std::uint64_t> called_off;
    decltype(moved_) moved;
    {
        std::lock_guard lock(mutex_);
        asked.swap(asked_);
        called_off.swap(called_off_);
        moved.swap(moved_);
    }
    for (auto& [number, addresses] : moved) {
        if (number >= servers_.size()) servers_.resize(number + 1);
        auto& server = servers_[number];
        server.addresses = std::move(addresses);
        server.preferred = 0;
        ++server.moved;
    }
    for (auto& job : asked) servers_[job.server].waiting.push_back(std::move(job));
    for (const auto ticket : called_off) {
        if (const auto found = under_way_.find(ticket); found != under_way_.end()) {
            close(*connections_[found->second]);
            continue;
        }
        for (auto& server : servers_)
            std::erase_if(server.waiting, [&](const Job& job) { return job.ticket == ticket; });
    }
}

// Gives what waits a connection. Who has none at all comes first: else one with many requests would keep all to itself.
void Client::assign() {
    for (auto& server : servers_)
        if (server.connections == 0 && !server.waiting.empty()) assign_one(server);
    for (auto& server : servers_)
        while (!server.waiting.empty() && assign_one(server)) {
        }
}

// Sends the first that waits over a connection that is idle, or a new one; false where there is none to be had.
bool Client::assign_one(Server& server) {
    std::size_t slot = kMostConnections;
    while (!server.idle.empty() && slot == kMostConnections) {
        slot = server.idle.back();
        server.idle.pop_back();
        auto& connection = *connections_[slot];
        if (is_fresh(connection) && connection.moved == server.moved) continue;
        connection.state = State::head;  // it is no longer among the idle ones
        close(connection);
        slot = kMostConnections;
    }
    if (slot == kMostConnections) {
        auto free = std::find(connections_.begin(), connections_.end(), nullptr);
        if (free == connections_.end()) {
            // An idle one of another server makes room.
            const auto rich = std::find_if(servers_.begin(), servers_.end(),
                                           [](const Server& other) { return !other.idle.empty(); });
            if (rich == servers_.end()) return false;
            const auto taken = rich->idle.front();
            close(*connections_[taken]);
            free = connections_.begin() + static_cast<std::ptrdiff_t>(taken);
        }
        slot = static_cast<std::size_t>(free - connections_.begin());
    }
    auto job = std::move(server.waiting.front());
    server.waiting.pop_front();
    start(std::move(job), slot);
    return true;
}

void Client::start(Job job, std::size_t slot) {
    under_way_[job.ticket] = slot;
    if (connections_[slot]) {
        auto& connection = *connections_[slot];
        connection.job = std::move(job);
        connection.sent = connection.head_size = connection.have = 0;
        connection.answer = {};
        low_water(connection, 1);
        connection.state = State::sending;
        return send(connection);
    }
    auto made = std::make_unique<Connection>();
    made->slot = slot;
    made->job = std::move(job);
    made->address = servers_[made->job.server].preferred;
    made->moved = servers_[made->job.server].moved;
    ++servers_[made->job.server].connections;
    connections_[slot] = std::move(made);
    open_connections_.fetch_add(1, std::memory_order_relaxed);
    auto& connection = *connections_[slot];
    if (!open(connection)) connect_failed(connection);
}

bool Client::open(Connection& connection) {
    const auto& addresses = servers_[connection.job.server].addresses;
    if (addresses.empty()) return false;
    const auto& address = addresses[connection.address % addresses.size()];
    const int socket = ::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0) return false;
    sockets_[connection.slot].store(socket);
    connection.socket = socket;
    connection.tag = connection.slot | std::uint64_t{++generation_} << 32;
    connection.watched = 0;
    connection.low_water = 1;
    connection.since = Clock::now();
    opened_.fetch_add(1, std::memory_order_relaxed);
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(socket, reinterpret_cast<const sockaddr*>(address.bytes.data()), address.size) == 0) {
        connection.state = State::sending;
        send(connection);
        return true;
    }
    if (errno != EINPROGRESS) return false;
    connection.state = State::connecting;
    watch(connection, EPOLLOUT);
    return true;
}

// The next address, until all were tried.
void Client::connect_failed(Connection& connection) {
    const auto& addresses = servers_[connection.job.server].addresses;
    while (++connection.tried < addresses.size()) {
        if (connection.socket >= 0) {
            epoll_ctl(epoll_, EPOLL_CTL_DEL, connection.socket, nullptr);
            sockets_[connection.slot].store(-1);
            ::close(connection.socket);
            connection.socket = -1;
        }
        ++connection.address;
        if (open(connection)) return;
    }
    fail(connection, "no connection to the server");
}

void Client::watch(Connection& connection, std::uint32_t events) {
    if (connection.watched == events) return;
    epoll_event event{.events = events, .data = {.u64 = connection.tag}};
    epoll_ctl(epoll_, connection.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, connection.socket, &event);
    connection.watched = events;
}

// How many bytes must be there before the system tells: a body that comes in many pieces is copied in few.
void Client::low_water(Connection& connection, std::size_t bytes) {
    if (connection.low_water == bytes) return;
    const int value = static_cast<int>(bytes);
    if (setsockopt(connection.socket, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value) == 0) connection.low_water = bytes;
}

void Client::send(Connection& connection) {
    const auto& request = connection.job.request;
    while (connection.sent < request.size()) {
        const auto sent = ::send(connection.socket, request.data() + connection.sent, request.size() - connection.sent,
                                 MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return watch(connection, EPOLLIN | EPOLLOUT);
        if (sent < 0) return fail(connection, "the connection broke");
        connection.sent += static_cast<std::size_t>(sent);
    }
    connection.state = State::head;
    watch(connection, EPOLLIN);
}

void Client::happened(std::uint64_t tag, std::uint32_t events) {
    const auto slot = static_cast<std::size_t>(tag & 0xffffffff);
    auto* connection = connections_[slot].get();
    if (!connection || connection->tag != tag) return;
    switch (connection->state) {
        case State::connecting: {
            int error = 0;
            socklen_t size = sizeof error;
            if (getsockopt(connection->socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
                return connect_failed(*connection);
            auto& server = servers_[connection->job.server];
            if (!server.addresses.empty()) server.preferred = connection->address % server.addresses.size();
            connection->state = State::sending;
            return send(*connection);
        }
        case State::sending:
            if (events & EPOLLOUT) return send(*connection);
            return fail(*connection, "the server answered before it was asked");
        case State::head:
        case State::body:
            return receive(*connection);
        case State::idle:
            return close(*connection);  // the server has closed it, or said what nobody asked for
    }
}

void Client::receive(Connection& connection) {
    if (connection.state == State::head && !receive_head(connection)) return;
    receive_body(connection);
}

// Whether the head is there and what was asked for, and more may have come.
bool Client::receive_head(Connection& connection) {
    ssize_t got = 0;
    do {
        got = recv(connection.socket, connection.head.data() + connection.head_size, kHead - connection.head_size, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) {
        fail(connection, got == 0 ? "the server closed the connection" : "the connection broke");
        return false;
    }
    const auto before = connection.head_size;
    connection.head_size += static_cast<std::size_t>(got);
    const std::string_view all(connection.head.data(), connection.head_size);
    const auto end = all.find("\r\n\r\n", before < 3 ? 0 : before - 3);
    if (end == std::string_view::npos) {
        if (connection.head_size == kHead) fail(connection, "the head of the answer is too long");
        return false;
    }
    connection.answer = parse_answer(all.substr(0, end + 4), connection.job.wanted);
    if (!connection.answer.wrong.empty()) {
        fail(connection, connection.answer.wrong);
        return false;
    }
    const auto rest = all.substr(end + 4);
    if (rest.size() > connection.answer.length) {
        fail(connection, "more came than was announced");
        return false;
    }
    connection.body = memory_->get(connection.answer.length);
    if (!connection.body) {
        fail(connection, "no memory for the answer");
        return false;
    }
    std::memcpy(connection.body.get(), rest.data(), rest.size());
    connection.have = rest.size();
    connection.state = State::body;
    return true;
}

void Client::receive_body(Connection& connection) {
    const auto length = connection.answer.length;
    while (connection.have < length) {
        const auto got = recv(connection.socket, connection.body.get() + connection.have, length - connection.have, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (got <= 0) return fail(connection, got == 0 ? "the answer ended early" : "the connection broke");
        connection.have += static_cast<std::size_t>(got);
    }
    const auto missing = length - connection.have;
    if (missing == 0) return finish(connection);
    low_water(connection, missing < kWorthWaiting ? 1 : std::min<std::size_t>(missing, kAtOnce));
}

void Client::finish(Connection& connection) {
    under_way_.erase(connection.job.ticket);
    const bool stays_open = connection.answer.stays_open;
    done_.push_back({connection.job.ticket, std::move(connection.answer), false, std::move(connection.body)});
    connection.body = nullptr;
    connection.used = true;
    if (stays_open)
        park(connection);
    else
        close(connection);
}

void Client::park(Connection& connection) {
    connection.state = State::idle;
    connection.since = Clock::now();
    servers_[connection.job.server].idle.push_back(connection.slot);
}

void Client::fail(Connection& connection, std::string why) {
    Told told{connection.job.ticket, {}, false, nullptr};
    told.unheard = connection.used && connection.head_size == 0;
    told.answer.status = connection.head_size ? connection.answer.status : 0;
    told.answer.wrong = std::move(why);
    done_.push_back(std::move(told));
    close(connection);
}

// Children of a fork may hold the socket too: it is taken from the set by hand, and the server hears of the end.
void Client::close(Connection& connection) {
    if (connection.state == State::idle)
        std::erase(servers_[connection.job.server].idle, connection.slot);
    else
        under_way_.erase(connection.job.ticket);
    if (connection.socket >= 0) {
        if (connection.watched) epoll_ctl(epoll_, EPOLL_CTL_DEL, connection.socket, nullptr);
        sockets_[connection.slot].store(-1);
        shutdown(connection.socket, SHUT_RDWR);
        ::close(connection.socket);
    }
    --servers_[connection.job.server].connections;
    open_connections_.fetch_sub(1, std::memory_order_relaxed);
    connections_[connection.slot].reset();
}

// Nothing has come over it since the last answer: neither its end nor what would be taken for the next one.
bool Client::is_fresh(const Connection& connection) const {
    char byte = 0;
    const auto got = recv(connection.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void Client::tidy(Clock::time_point now) {
    tidied_ = now;
    for (auto& held : connections_) {
        if (!held) continue;
        if (held->state == State::idle && now - held->since > kIdle)
            close(*held);
        else if (held->state == State::connecting) {
            const bool last = held->tried + 1 >= servers_[held->job.server].addresses.size();
            if (now - held->since > (last ? kConnecting : kConnectingFirst)) connect_failed(*held);
        }
    }
    memory_->trim(now - kUnused);
}

void Client::publish() {
    if (done_.empty()) return;
    {
        std::lock_guard lock(mutex_);
        std::move(done_.begin(), done_.end(), std::back_inserter(told_));
    }
    done_.clear();
    came_.notify_one();
}

}  // namespace fl::net

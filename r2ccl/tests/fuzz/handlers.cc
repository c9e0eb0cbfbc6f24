// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a sender and a receiver on a virtual fabric, and between them somebody who holds the keys of
// their control connection: a peer gone mad. He passes messages on, changes, drops, repeats and invents them,
// of every type and size; time passes, ports go down, messages are posted meanwhile. No word of his may crash
// an end, hang it, or keep it from being closed; and as long as he only passes things on, the traffic
// arrives.
#include <arpa/inet.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cmake/fuzz/input.h"
#include "harness/vhca/fabric/fabric_host.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/receiver.h"
#include "r2ccl/channel/sender.h"
#include "r2ccl/control/interface.h"
#include "r2ccl/path/registrations.h"

namespace {

using namespace r2ccl;

constexpr int kNics = 2;
constexpr size_t kMessageBytes = 256;

control::Token fixed_token(uint8_t filling) {
  control::Token token;
  token.fill(filling);
  return token;
}
const control::Token kToken = fixed_token(0x51);

/// One end's process, as far as a channel knows it.
struct End {
  ProcessContext context;
  std::unique_ptr<Registrations> registrations;
  std::vector<uint8_t> memory = std::vector<uint8_t>(wire::kRingLines * kMessageBytes);
  Registration* registration = nullptr;

  explicit End(const char* host) {
    context.config.ib_timeout = 14;
    auto devices = verbs::Device::open_all(context.config);
    FUZZ_CHECK(devices.ok() && devices->size() == size_t(kNics));
    context.devices = std::move(*devices);
    for (int nic = 0; nic < kNics; ++nic) context.backups.push_back({{1 - nic, 0}});
    context.host = host;
    context.process = uint64_t(host[0]);
    context.kick = [] {};
    context.load = [](bool) -> const NicLoad& {
      static const NicLoad none;
      return none;
    };
    // Nobody who has been greeted connects anew here: what would come of it is link_test's and outage_test's.
    context.endpoint = [] { return Result<control::Endpoint>(Error{ErrorCode::kSystem, "nowhere"}); };
    const std::vector<std::string> names(kNics, "nic");
    context.workers = std::make_unique<NicWorkers>("fuzz-nic", names, [] {});
    context.registrars = std::make_unique<NicWorkers>("fuzz-reg", names, [] {});
    registrations = std::make_unique<Registrations>(context);
    auto made = registrations->add(memory.data(), memory.size(), {}, 0);
    FUZZ_CHECK(made.ok());
    registration = *made;
  }
};

/// Made once: the fabric, the two ends, and the socket that senders connect to.
struct World {
  vhca::FabricHost fabric;
  std::unique_ptr<End> sender, receiver;
  control::Descriptor listening;
  control::Endpoint where;

  World() : fabric(make_fabric()) {
    FUZZ_CHECK(sodium_init() >= 0);
    setenv("VHCA_FABRIC", fabric.path().c_str(), 1);
    setenv("VHCA_NODE", "node0", 1);
    set_log_sink([](LogLevel, const char*, int, const char*) {});
    sender = std::make_unique<End>("sender");
    receiver = std::make_unique<End>("receiver");
    control::InterfaceWish loopback;
    loopback.names = "lo";
    auto fd = control::listen_any(loopback, where);
    FUZZ_CHECK(fd.ok());
    listening = std::move(*fd);
  }
  static vhca::FabricHost make_fabric() {
    vhca::FabricSpec spec;
    spec.nodes.push_back({"node0", std::vector<vhca::PortSpec>(kNics)});
    return vhca::FabricHost::create(spec);
  }
};

/// His connection to one end.
class Wire {
 public:
  /// `said`: messages that the end has from him already.
  Wire(control::Stream stream, bool end_is_sender, uint64_t said = 0)
      : end_is_sender_(end_is_sender),
        stream_(std::move(stream)),
        to_(control::direction_key(kToken, {}, !end_is_sender), said),
        from_(control::direction_key(kToken, {}, end_is_sender)) {}

  void rekey(const control::Token& nonce) {
    to_.rekey(control::direction_key(kToken, nonce, !end_is_sender_));
    from_.rekey(control::direction_key(kToken, nonce, end_is_sender_));
  }
  /// `honest`: he has meddled with nothing, so he has the right keys.
  std::optional<control::Message> hear(bool honest) {
    if (!stream_.open()) return std::nullopt;
    if (!stream_.fill() && stream_.incoming.empty()) return std::nullopt;
    control::Message message;
    if (end_is_sender_ && !heard_) {  // a sender's hello is numbered by its connection
      attempt_ = control::Decoder::peek_counter(stream_.incoming);
      from_ = control::Decoder(control::direction_key(kToken, {}, true), attempt_);
    }
    auto next = from_.next(stream_.incoming, message);
    FUZZ_CHECK(next.ok() || !honest);  // what an end says, its peer understands
    if (next.ok() && *next && end_is_sender_ && !heard_)
      from_ = control::Decoder(control::direction_key(kToken, {}, true), 1);
    heard_ |= next.ok() && *next;
    if (!next) stream_.close();
    return next.ok() && *next ? std::optional(std::move(message)) : std::nullopt;
  }
  void say(control::Message message) {
    if (!stream_.open()) return;
    // Whoever is believed may say where his process listens, and is connected to: not from here.
    if ((message.type == uint16_t(wire::Type::kHello) || message.type == uint16_t(wire::Type::kWelcome)) &&
        message.payload.size() == sizeof(wire::Hello))
      std::memset(message.payload.data() + offsetof(wire::Hello, where), 0, sizeof(control::Endpoint));
    to_.append(message.type, message.payload, stream_.outgoing);
    stream_.flush();
  }
  void blurt(std::span<const uint8_t> bytes) {
    if (!stream_.open()) return;
    const auto raw = std::as_bytes(bytes);
    stream_.outgoing.insert(stream_.outgoing.end(), raw.begin(), raw.end());
    stream_.flush();
  }
  void hang_up() { stream_.close(); }
  uint64_t attempt() const { return attempt_; }

 private:
  bool end_is_sender_;
  bool heard_ = false;
  uint64_t attempt_ = 0;
  control::Stream stream_;
  control::Encoder to_;
  control::Decoder from_;
};

size_t size_of(wire::Type type) {
  switch (type) {
    case wire::Type::kHello:
    case wire::Type::kWelcome:
      return sizeof(wire::Hello);
    case wire::Type::kOpen:
      return sizeof(wire::Open);
    case wire::Type::kOpened:
      return sizeof(wire::Opened);
    case wire::Type::kProve:
    case wire::Type::kProved:
    case wire::Type::kDrop:
    case wire::Type::kLane:
    case wire::Type::kRest:
      return sizeof(wire::PathMessage);
    case wire::Type::kMigrate:
      return sizeof(wire::Migrate);
    case wire::Type::kFenced:
      return sizeof(wire::Fenced);
    case wire::Type::kUse:
      return sizeof(wire::Use);
    case wire::Type::kNic:
      return sizeof(wire::Nic);
    case wire::Type::kClose:
    case wire::Type::kAckQuery:
    case wire::Type::kReceived:
      return sizeof(wire::Received);
    case wire::Type::kRefuse:
    case wire::Type::kFail:
      return sizeof(wire::Sentence);
  }
  return 0;
}

class Play {
 public:
  explicit Play(World& world) : world_(world), start_(now_ns()) {
    wire::Handle handle{};
    handle.magic = wire::kHandleMagic;
    handle.version = wire::kWireVersion;
    handle.where = world.where;
    handle.token = kToken;
    auto sender = Sender::start(world.sender->context, 0, handle);
    FUZZ_CHECK(sender.ok());
    sender_ = std::move(*sender);
    control::Descriptor fd;
    while (!(fd = admit())) FUZZ_CHECK(errno == EAGAIN || errno == EINTR);
    to_sender_.emplace(control::Stream(std::move(fd)), true);
    auto [his, receivers] = pair();
    to_receiver_.emplace(std::move(his), false);
    receiver_ = std::make_shared<Receiver>(world.receiver->context, 0, std::move(receivers), kToken);
  }

  // The ends' queue pairs go before the next play begins, whatever became of this one.
  ~Play() {
    to_sender_->hang_up();
    to_receiver_->hang_up();
    for (Channel* channel : {static_cast<Channel*>(sender_.get()), static_cast<Channel*>(receiver_.get())}) {
      channel->close_requested.store(true);
      for (int i = 0; i < 3 && !channel->finished(); ++i) {
        skip_ += 16000 * kNsPerMs;  // a closed end answers its peer for 15 s
        channel->on_socket(tick());
        channel->step(tick());
        let_workers_finish();
      }
      FUZZ_CHECK(channel->finished());
      channel->close_and_wait();
    }
    while (admit()) continue;  // the next play's sender is the next to be met
    for (auto* end : {world_.sender.get(), world_.receiver.get()}) {
      end->context.nic_down.fill(false);
      for (auto& unusable : end->context.nic_unusable) unusable.store(false);
    }
  }

  void step() {
    for (Channel* channel : {static_cast<Channel*>(sender_.get()), static_cast<Channel*>(receiver_.get())}) {
      channel->on_socket(tick());
      channel->step(tick());
    }
    if (control::Descriptor fd = admit()) {  // the sender, which has no welcome, has connected anew
      to_sender_.emplace(control::Stream(std::move(fd)), true);
      greeted_ = false;
      begun_again_ = true;
    }
    let_workers_finish();
  }
  void pass_time(uint64_t milliseconds) {
    alive_ += milliseconds * kNsPerMs;
    skip_ += milliseconds * kNsPerMs;
    step();
  }

  /// Takes the next message that one end has for the other; what he does with it is the input's choice.
  std::optional<control::Message> next(bool from_sender) {
    auto message = wire(from_sender).hear(honest_);
    if (!message) return std::nullopt;
    if (message->type == uint16_t(wire::Type::kWelcome) && !from_sender)
      if (auto welcome = message->as<wire::Hello>(); welcome) to_receiver_->rekey(welcome->nonce);
    return message;
  }
  void hand_on(bool from_sender, const control::Message& message) {
    last_[from_sender] = message;
    if (from_sender && message.type == uint16_t(wire::Type::kHello) && begun_again_)
      return begin_again(message);
    wire(!from_sender).say(message);
    if (message.type == uint16_t(wire::Type::kWelcome) && !from_sender && !greeted_)
      if (auto welcome = message.as<wire::Hello>(); welcome) {
        greeted_ = true;
        to_sender_->rekey(welcome->nonce);
      }
  }
  void pass_on(bool from_sender, int most) {
    for (int i = 0; i < most; ++i) {
      auto message = next(from_sender);
      if (!message) return;
      hand_on(from_sender, *message);
    }
  }
  void repeat(bool from_sender) {
    if (last_[from_sender]) say(!from_sender, *last_[from_sender]);
  }
  void say(bool to_sender, const control::Message& message) { wire(to_sender).say(message); }
  void blurt(bool to_sender, std::span<const uint8_t> bytes) { wire(to_sender).blurt(bytes); }

  void post(uint8_t bytes) {
    if (posted_ >= wire::kRingLines || open_.size() >= 8) return;
    const size_t at = posted_ % wire::kRingLines * kMessageBytes;
    End &from = *world_.sender, &to = *world_.receiver;
    auto wanted = receiver_->post(to.memory.data() + at, kMessageBytes, to.registration, thread_);
    if (!wanted || !*wanted) return;
    std::memset(from.memory.data() + at, uint8_t(posted_ + 1), bytes);
    std::memset(to.memory.data() + at, 0, kMessageBytes);
    open_.push_back({*wanted, nullptr, at, bytes, uint8_t(posted_ + 1)});
    ++posted_;
  }
  void test() {
    for (auto& message : open_)
      if (!message.send) {
        auto sent = sender_->post(world_.sender->memory.data() + message.at, message.bytes,
                                  world_.sender->registration, thread_);
        if (!sent || !*sent) break;
        message.send = *sent;
      }
    if (open_.empty() || !open_.front().send) return;
    auto& message = open_.front();
    if (!message.received) {
      auto outcome = receiver_->test(*message.receive, thread_);
      message.received = outcome.ok() && outcome->done;
      if (message.received && honest_) {
        FUZZ_CHECK(outcome->bytes == message.bytes);
        for (size_t i = 0; i < kMessageBytes; ++i)
          FUZZ_CHECK(world_.receiver->memory[message.at + i] == (i < message.bytes ? message.filling : 0));
      }
    }
    if (!message.sent) {
      auto outcome = sender_->test(*message.send, thread_);
      message.sent = outcome.ok() && outcome->done;
      if (outcome.ok()) thread_.look_at_acks(message.sent);
    }
    if (message.received && message.sent) open_.pop_front();
  }

  void nic_changed(bool sender, int nic, bool up) {
    Channel& channel = sender ? static_cast<Channel&>(*sender_) : *receiver_;
    channel.context().nic_down[size_t(nic)] = !up;
    channel.nic_changed(nic, up, tick());
  }
  void hang_up(bool on_sender) { wire(on_sender).hang_up(); }
  void lie() { honest_ = false; }

  /// What was posted arrives, when he has done nothing but pass things on and no NIC was said to be down.
  void everything_arrives() {
    if (!honest_) return;
    post(77);
    for (long i = 0; !open_.empty() || posted_ == 0; ++i) {
      FUZZ_CHECK(sender_->status() != Status::kFailed && receiver_->status() != Status::kFailed);
      FUZZ_CHECK(now_ns() - start_ < 300'000 * kNsPerMs);
      step();
      pass_on(true, 8);
      pass_on(false, 8);
      test();
      if (posted_ == 0) post(77);
      if (i > 1000) sched_yield();
    }
  }

 private:
  /// Whoever has connected; empty: nobody, and errno says why.
  control::Descriptor admit() const {
    control::Descriptor fd(accept4(world_.listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return fd;
    const linger at_once{.l_onoff = 1, .l_linger = 0};  // thousands of these a second: none may linger
    FUZZ_CHECK(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    return fd;
  }
  static std::pair<control::Stream, control::Stream> pair() {
    int ends[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    return {control::Stream(control::Descriptor(ends[0])), control::Stream(control::Descriptor(ends[1]))};
  }
  /// The receiver gets a hello over a connection of its own, as its service would hand it on.
  void begin_again(const control::Message& hello) {
    auto [his, receivers] = pair();
    control::Encoder(control::direction_key(kToken, {}, true), to_sender_->attempt())
        .append(hello.type, hello.payload, receivers.incoming);
    if (receiver_->reconnected(std::move(receivers), tick())) to_receiver_.emplace(std::move(his), false, 1);
  }

  // So that an input does the same each time.
  void let_workers_finish() {
    for (auto* end : {world_.sender.get(), world_.receiver.get()})
      while (end->context.workers->open_jobs()) sched_yield();
  }

  struct Open {
    Request* receive;
    Request* send;
    size_t at;
    uint8_t bytes, filling;
    bool received = false, sent = false;
  };

  Wire& wire(bool of_sender) { return of_sender ? *to_sender_ : *to_receiver_; }
  Tick tick() const { return {now_ns() + skip_, alive_}; }

  World& world_;
  uint64_t start_, skip_ = 0, alive_ = 1;
  std::shared_ptr<Sender> sender_;
  std::shared_ptr<Receiver> receiver_;
  std::optional<Wire> to_sender_, to_receiver_;
  std::optional<control::Message> last_[2];
  bool greeted_ = false, honest_ = true, begun_again_ = false;
  ProgressThread thread_;
  std::deque<Open> open_;
  uint64_t posted_ = 0;
};

std::vector<std::byte> payload(std::span<const uint8_t> from, size_t bytes) {
  std::vector<std::byte> out(bytes);
  if (!from.empty() && bytes > 0) std::memcpy(out.data(), from.data(), std::min(from.size(), bytes));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static World& world = *new World;  // the fabric's threads end with the process
  fuzz::Input input(data, bytes);
  Play play(world);
  for (int steps = 0; !input.empty() && steps < 100; ++steps) {
    const uint8_t choice = input.byte();
    const bool sender = choice & 0x80;
    switch (choice % 16) {
      case 0:
      case 1:
      case 2:
        play.step();
        play.pass_on(true, 4);
        play.pass_on(false, 4);
        break;
      case 3:
        play.pass_on(sender, 1);
        break;
      case 4:
        play.post(input.byte());
        break;
      case 5:
      case 6:
        play.test();
        break;
      case 7:  // one word of the next message is another
        if (auto message = play.next(sender); message) {
          play.lie();
          const size_t at = input.byte();
          for (const uint8_t byte : input.bytes(1 + input.byte() % 8))
            if (!message->payload.empty()) message->payload[at % message->payload.size()] = std::byte(byte);
          play.hand_on(sender, *message);
        }
        break;
      case 8:
        if (play.next(sender)) play.lie();  // and it is lost
        break;
      case 9:
        play.lie();
        play.repeat(sender);
        break;
      case 10:
      case 11: {  // of the size that belongs to its type
        play.lie();
        const auto type = uint16_t(input.byte() % 20);
        const auto words = input.bytes(input.byte());
        play.say(sender, {type, payload(words, size_of(wire::Type(type)))});
        break;
      }
      case 12: {
        play.lie();
        const auto type = uint16_t(input.number(2));
        const auto words = input.bytes(input.byte());
        play.say(sender, {type, payload(words, words.size())});
        break;
      }
      case 13:
        play.lie();
        play.pass_time(input.byte());
        break;
      case 14: {
        play.lie();
        const uint8_t which = input.byte();
        play.nic_changed(sender, which % kNics, which & 0x80);
        break;
      }
      default:
        play.lie();
        if (choice & 0x40)
          play.hang_up(sender);
        else
          play.blurt(sender, input.bytes(input.byte()));
    }
  }
  play.everything_arrives();
  return 0;
}

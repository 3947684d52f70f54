---------------------------- MODULE SiteForward ----------------------------
(***************************************************************************)
(* Three gateways of one site pass publications on to one another, while a  *)
(* session with one filter moves between them (gateway/site/README.md says  *)
(* the rules). Who has the session, and that it is in one place, is the     *)
(* matter of SiteMove: here it is given, and then it arrives or is called   *)
(* back.                                                                   *)
(*                                                                         *)
(* Where a session leaves, a follower takes its place. It takes what the    *)
(* session would have got, and passes that on to where the session went.    *)
(* Where the session arrives, it takes nothing that a member passes on      *)
(* until that member has put a marker into its streams to all others, in    *)
(* one step: what comes before the marker is the follower's, what comes     *)
(* after it is the session's.                                              *)
(*                                                                         *)
(* A stream, the queue of one member for another one, is on disk: it keeps  *)
(* its order, and each message in it is taken once, through cuts and power  *)
(* cuts. It may take any time: that stands for links that are down. What a  *)
(* member says of a move may be lost, come late, come after what is newer,  *)
(* or be said again. Each step is one commit, and nothing leaves a member   *)
(* before its commit: so a power cut at any moment is one between two       *)
(* steps, and costs what is being said and not yet heard.                   *)
(*                                                                         *)
(* What is done with a message depends on no other message: so one, made at *)
(* any member at any moment, stands for all.                                *)
(*                                                                         *)
(* Left out: the bounds of queues; sessions that end, or go on in doubt;    *)
(* filters that change on the way; shared subscriptions; members that are   *)
(* removed; restored stores.                                               *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS
    Gives,      \* how often the session may be given to another member
    Messages,   \* how many publications are made
    Repeats,    \* how often a member hears again of a move that it has answered
    Broken      \* a promise that is broken on purpose, or "nothing"

VARIABLES
    session,    \* where it is, and what it does not take yet
    follower,   \* by number of the move: what the session has left behind there
    stream,     \* stream[m][n]: what m passes on to n, in order
    knows,      \* knows[m]: members of which m knows for sure that they want what is published
    heard,      \* heard[m]: by number of the move, how often m has heard of it
    got,        \* publications that the session has got
    twice,      \* it has got one twice
    published, gives

vars == <<session, follower, stream, knows, heard, got, twice, published, gives>>

Members == 1..3
Others(m) == Members \ {m}
Numbers == 1..Gives

(* number: how often the session has moved. closed: members whose messages are not for it yet.
   tail: its last follower may still have something for it. to: whom it is given to, or 0. *)
Session(at, number, closed, tail) ==
    [at |-> at, number |-> number, closed |-> closed, tail |-> tail, to |-> 0]

(* The session came to `at` with move number - 1, and left for `to` with move `number`. done: members
   whose messages are not for it any more. *)
NoFollower == [at |-> 0, to |-> 0, closed |-> {}, done |-> {}, tail |-> FALSE, queue |-> <<>>]

Message(i) == [kind |-> "message", number |-> 0, message |-> i]
Addressed(k, i) == [kind |-> "addressed", number |-> k, message |-> i]
Marker(k) == [kind |-> "marker", number |-> k, message |-> 0]
TailEnd(k) == [kind |-> "end", number |-> k, message |-> 0]

Init ==
    /\ session = Session(1, 0, {}, FALSE)
    /\ follower = [k \in Numbers |-> NoFollower]
    /\ stream = [m \in Members |-> [n \in Members |-> <<>>]]
    /\ knows = [m \in Members |-> {1} \ {m}]
    /\ heard = [m \in Members |-> [k \in Numbers |-> 0]]
    /\ got = {} /\ twice = FALSE /\ published = 0 /\ gives = 0

Here(m) == session.at = m /\ session.to = 0
At(m) == {k \in Numbers : follower[k].at = m}

----------------------------------------------------------------------------
(* Followers. *)

(* Follower k takes what comes from n. *)
Takes(k, n) == n \notin follower[k].closed /\ n \notin follower[k].done

Queued(ks, i) ==
    [k \in Numbers |-> IF k \in ks THEN [follower[k] EXCEPT !.queue = Append(@, i)] ELSE follower[k]]

(* Member m has seen a marker of n for move `number`. *)
Marked(m, n, number) ==
    [k \in Numbers |->
        IF follower[k].at # m THEN follower[k]
        ELSE [follower[k] EXCEPT !.closed = IF k - 1 <= number THEN @ \ {n} ELSE @,
                                 !.done = IF k <= number THEN @ \cup {n} ELSE @]]

(* One whose own member has heard of the move knows that the session has arrived. *)
PassesOn(left) == left.at \in left.done

IsOver(left) ==
    /\ left.at # 0
    /\ (IF Broken = "a member is not waited for" THEN {left.at, left.to} ELSE Members) \subseteq left.done
    /\ ~left.tail \/ Broken = "no tail is waited for"

(* What follower k puts into the stream to n. *)
PutBy(left, k, n) ==
    IF left.to # n \/ ~PassesOn(left) THEN <<>>
    ELSE [j \in DOMAIN left.queue |-> Addressed(k, left.queue[j])]
         \o (IF IsOver(left) THEN <<TailEnd(k)>> ELSE <<>>)

RECURSIVE Put(_, _, _, _)
Put(left, m, n, k) ==
    IF k = 0 THEN <<>>
    ELSE Put(left, m, n, k - 1) \o (IF left[k].at = m THEN PutBy(left[k], k, n) ELSE <<>>)

(* Followers and streams after a commit of m, in which its followers have become `left`: they pass on
   what they have, to the end of a stream, and one that is over goes. *)
Follow(m, left, streams) ==
    /\ follower' = [k \in Numbers |->
            IF left[k].at # m \/ ~PassesOn(left[k]) THEN left[k]
            ELSE IF IsOver(left[k]) THEN NoFollower
            ELSE [left[k] EXCEPT !.queue = <<>>]]
    /\ stream' = [streams EXCEPT ![m] = [n \in Members |-> @[n] \o Put(left, m, n, Gives)]]

----------------------------------------------------------------------------
(* Messages. *)

Wants(m) == Here(m) \/ At(m) # {}

Gets(messages) ==
    /\ got' = got \cup messages
    /\ twice' = (twice \/ messages \cap got # {})

(* m puts a message into its streams to some others, in one step. *)
ToAll(m, among, message) ==
    [stream EXCEPT ![m] = [n \in Members |-> IF n \in among THEN Append(@[n], message) ELSE @[n]]]

(* A marker that says nothing to whoever is there, or comes there later, is left out. *)
Needs(place, n, number) ==
    \/ n = place
    \/ \E k \in At(n) : k - 1 <= number

(* more: members of which m knows that nobody there wants it any more, or soon will. *)
Publish(m) ==
    /\ published < Messages
    /\ published' = published + 1
    /\ \E more \in SUBSET (Others(m) \ knows[m]) :
        LET i == published + 1
        IN  /\ Gets(IF Here(m) THEN {i} ELSE {})
            /\ Follow(m, Queued({k \in At(m) : Takes(k, m)}, i),
                      ToAll(m, knows[m] \cup more, Message(i)))
    /\ UNCHANGED <<session, knows, heard, gives>>

(* m takes the next message of n. *)
Receive(m, n) ==
    /\ stream[n][m] # <<>>
    /\ LET next == Head(stream[n][m])
           number == next.number
           rest == [stream EXCEPT ![n][m] = Tail(@)]
           mine == Here(m) /\ session.number = number
           opens == Here(m) /\ (session.number <= number \/ Broken = "any marker opens")
           gets == IF next.kind = "addressed" THEN mine
                   ELSE Here(m) /\ (n \notin session.closed \/ Broken = "no gate")
           takers == {k \in At(m) : IF next.kind = "message" THEN Takes(k, n) ELSE k - 1 = number}
       IN  CASE next.kind \in {"message", "addressed"} ->
                    /\ Gets(IF gets THEN {next.message} ELSE {})
                    /\ Follow(m, Queued(takers, next.message), rest)
                    /\ UNCHANGED session
             [] next.kind = "marker" ->
                    /\ session' = IF opens THEN [session EXCEPT !.closed = @ \ {n}] ELSE session
                    /\ Follow(m, Marked(m, n, number), rest)
                    /\ UNCHANGED <<got, twice>>
             [] next.kind = "end" ->
                    /\ session' = IF mine THEN [session EXCEPT !.tail = FALSE] ELSE session
                    /\ Follow(m, [k \in Numbers |-> [follower[k] EXCEPT
                                    !.tail = @ /\ k \notin takers]], rest)
                    /\ UNCHANGED <<got, twice>>
    /\ knows' = [o \in Members |-> {p \in knows[o] : Wants(p)'}]
    /\ UNCHANGED <<heard, published, gives>>

----------------------------------------------------------------------------
(* The session moves. *)

Give(n) ==
    /\ session.to = 0 /\ gives < Gives /\ n # session.at
    /\ gives = 0 => n = 2   \* until then, 2 and 3 are alike
    /\ gives' = gives + 1
    /\ LET left == [NoFollower EXCEPT !.at = session.at, !.to = n, !.closed = session.closed,
                                      !.tail = session.tail]
       IN  follower' = IF Broken = "no follower" THEN follower
                       ELSE [follower EXCEPT ![session.number + 1] = left]
    /\ session' = [session EXCEPT !.to = n]
    /\ UNCHANGED <<stream, knows, heard, got, twice, published>>

(* Nobody has taken it, and a third member gets it. *)
GiveElse(n) ==
    /\ session.to # 0 /\ gives < Gives /\ n \notin {session.at, session.to}
    /\ gives' = gives + 1
    /\ session' = [session EXCEPT !.to = n]
    /\ follower' = [follower EXCEPT ![session.number + 1].to = n]
    /\ UNCHANGED <<stream, knows, heard, got, twice, published>>

(* Nobody has taken it: it goes on where it was, with what its follower has and knows. *)
Recall ==
    /\ session.to # 0
    /\ LET left == follower[session.number + 1]
       IN  /\ Gets({left.queue[j] : j \in DOMAIN left.queue})
           /\ session' = IF Broken = "a recall brings the old gate" THEN [session EXCEPT !.to = 0]
                         ELSE Session(session.at, session.number, left.closed, left.tail)
    /\ follower' = [follower EXCEPT ![session.number + 1] = NoFollower]
    /\ UNCHANGED <<stream, knows, heard, published, gives>>

Arrive ==
    /\ session.to # 0
    /\ LET m == session.to
           number == session.number + 1
           markers == IF Broken = "no marker of its own" THEN {} ELSE Others(m)
       IN  /\ session' = Session(m, number, Others(m), Broken # "no follower")
           /\ Follow(m, Marked(m, m, number),
                     ToAll(m, {n \in markers : Needs(m, n, number)}, Marker(number)))
    /\ knows' = [o \in Members |-> {p \in knows[o] : Wants(p)'}]
    /\ UNCHANGED <<heard, got, twice, published, gives>>

(* m hears of a move from where the session arrived by it; of the filter there it has heard before. *)
Hear(m, number) ==
    /\ IF number <= session.number THEN TRUE
       ELSE Broken = "told before it has arrived" /\ session.to \notin {0, m}
    /\ LET last == number = session.number
           place == IF last THEN session.at
                    ELSE IF number < session.number THEN follower[number + 1].at ELSE session.to
           from == IF place = 0 THEN {} ELSE {place}
           among == IF Broken = "a marker to one alone" THEN from ELSE Others(m)
       IN  /\ m # place
           /\ Follow(m, Marked(m, m, number),
                     ToAll(m, {n \in among : Needs(session.at, n, number)}, Marker(number)))
           /\ UNCHANGED session
           /\ knows' = [o \in Members |-> {p \in knows[o] \cup (IF o = m /\ Broken # "told before its filter" THEN from ELSE {}) : Wants(p)'}]
    /\ heard' = [heard EXCEPT ![m][number] = IF @ > Repeats THEN @ ELSE @ + 1]
    /\ UNCHANGED <<got, twice, published, gives>>

(* The session says it until it has seen the marker. *)
HearAtLast(m) ==
    /\ session.to = 0 /\ m \in session.closed
    /\ ~\E j \in DOMAIN stream[m][session.at] :
            LET next == stream[m][session.at][j]
            IN  next.kind = "marker" /\ next.number >= session.number
    /\ Hear(m, session.number)

(* Late, or once again. *)
HearAnyway(m) == \E number \in Numbers : heard[m][number] <= Repeats /\ Hear(m, number)

----------------------------------------------------------------------------
Goes ==
    \/ Recall \/ Arrive
    \/ \E m \in Members : HearAtLast(m) \/ \E n \in Others(m) : Receive(m, n)
Fate ==
    \/ \E n \in Members : Give(n) \/ GiveElse(n)
    \/ \E m \in Members : Publish(m) \/ HearAnyway(m)

Next == Goes \/ Fate
Spec == Init /\ [][Next]_vars /\ WF_vars(Goes)

----------------------------------------------------------------------------
NothingIsDoubled == ~twice

(* The session has it, or it is in a queue. *)
NothingIsLost ==
    \A i \in 1..published :
        \/ i \in got
        \/ \E k \in Numbers : \E j \in DOMAIN follower[k].queue : follower[k].queue[j] = i
        \/ \E m, n \in Members : \E j \in DOMAIN stream[m][n] : stream[m][n][j].message = i

(* Nothing can go on by itself. *)
IsQuiet ==
    /\ session.to = 0 /\ session.closed = {}
    /\ \A m, n \in Members : stream[m][n] = <<>>

NothingIsStuck ==
    IsQuiet => ~session.tail /\ (\A k \in Numbers : follower[k] = NoFollower) /\ got = 1..published

BecomesQuiet == []<>IsQuiet
=============================================================================

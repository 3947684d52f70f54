---------------------------- MODULE SiteForward ----------------------------
(***************************************************************************)
(* Three gateways of one site pass publications on to one another, while a *)
(* session with one filter moves between them (gateway/site/README.md says *)
(* the rules). Who has the session, and that it is in one place, is the    *)
(* matter of SiteMove: here it is given, and then it arrives or comes      *)
(* back.                                                                   *)
(*                                                                         *)
(* Where a session leaves, a follower takes its place. It takes what the   *)
(* session would have got, and sends it on to where the session is. Where  *)
(* the session arrives, it takes nothing that a member passes on until     *)
(* that member has cut, that is, put a cut into its streams to all others  *)
(* in one step: what comes before it is the follower's, what comes after   *)
(* it is the session's.                                                    *)
(*                                                                         *)
(* A stream, the queue of one member for another one, is on disk: it keeps *)
(* its order, and each message in it is taken once, through cuts of links  *)
(* and power cuts. It may take any time: that stands for links that are    *)
(* down. Each step is one commit, and nothing leaves a member before its   *)
(* commit. So a power cut comes between two steps, and no step is lost by  *)
(* it; a member that starts asks again for the cuts that its session waits *)
(* for.                                                                    *)
(*                                                                         *)
(* What is done with a message depends on no other message: so one, made   *)
(* at any member at any moment, stands for all.                            *)
(*                                                                         *)
(* Left out: the bounds of queues, and notices that are asked for again    *)
(* because of them; followers that find their session nowhere; sessions    *)
(* that end, or go on in doubt; filters that change on the way; shared     *)
(* subscriptions; members that are removed; restored stores.               *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS
    Gives,      \* how often the session may be given to another member
    Messages,   \* how many publications are made
    Restarts,   \* how often the member that has the session may start again
    Broken      \* a promise that is broken on purpose, or "nothing"

VARIABLES
    session,    \* where it is, and what it does not take yet
    follower,   \* by number of the give: what the session has left behind there
    stream,     \* stream[m][n]: what m passes on to n, in order
    knows,      \* knows[m]: members of which m knows for sure that they want what is published
    got,        \* publications that the session has got
    twice,      \* it has got one twice
    published, gives, restarts

counts == <<published, gives, restarts>>
vars == <<session, follower, stream, knows, got, twice, counts>>

Members == 1..3
Others(m) == Members \ {m}
Numbers == 1..Gives

(* moves: how often it has moved. closed: members that have not cut: what they pass on is not for
   it. tails: members where a follower may have something for it. to: whom it is given to, or 0. *)
Session(at, moves, closed, tails) ==
    [at |-> at, moves |-> moves, closed |-> closed, tails |-> tails, to |-> 0]

(* moves: how often its session had moved when it was at `at`. done: members whose messages go to
   the session itself by now. to: where the session is, or 0: that is not known yet. *)
NoFollower == [at |-> 0, moves |-> 0, to |-> 0, closed |-> {}, done |-> {}, tails |-> {},
               queue |-> <<>>]

Message(i) == [kind |-> "message", moves |-> 0, message |-> i]
Addressed(moves, i) == [kind |-> "addressed", moves |-> moves, message |-> i]
Notice(kind, moves) == [kind |-> kind, moves |-> moves, message |-> 0]

Init ==
    /\ session = Session(1, 0, {}, {})
    /\ follower = [k \in Numbers |-> NoFollower]
    /\ stream = [m \in Members |-> [n \in Members |-> <<>>]]
    /\ knows = [m \in Members |-> {1} \ {m}]
    /\ got = {} /\ twice = FALSE /\ published = 0 /\ gives = 0 /\ restarts = 0

Here(m) == session.at = m /\ session.to = 0

(* It is at m, has moved so often, and something of that is still open. *)
\* gateway/site/moving/session_moves.py: at
Travels(m, moves) ==
    Here(m) /\ session.moves = moves /\ session.closed \cup session.tails # {}

(* The session has come back to where it has left follower k. *)
IsBack(k) == follower[k].to = follower[k].at

At(m) == {k \in Numbers : follower[k].at = m /\ ~IsBack(k)}

----------------------------------------------------------------------------
(* Messages. *)

Wants(m) == Here(m) \/ At(m) # {}

(* Who has gone wants nothing more, and whoever knows that may pass nothing on. *)
Known(sure) == knows' = [m \in Members |-> {n \in sure[m] : Wants(n)'}]

Gets(messages) ==
    /\ got' = got \cup messages
    /\ twice' = (twice \/ messages \cap got # {})

\* gateway/site/moving/session_moves.py: accepts
Takes(k, n) == n \notin follower[k].closed /\ n \notin follower[k].done

ToAll(streams, m, among, item) ==
    [streams EXCEPT ![m] = [n \in Members |-> IF n \in among THEN Append(@[n], item) ELSE @[n]]]

RECURSIVE Sent(_, _, _)
Sent(ks, n, i) ==
    IF ks = {} THEN <<>>
    ELSE LET k == CHOOSE x \in ks : TRUE
             rest == Sent(ks \ {k}, n, i)
         IN  IF follower[k].to = n THEN Append(rest, Addressed(follower[k].moves + 1, i)) ELSE rest

(* Followers `ks` at m take a message: it waits, or is sent on at once. *)
\* gateway/site/moving/session_moves.py: routes, onward;
\* gateway/site/moving/late_messages.py: _forward, _deliver_here
Follow(m, ks, i, streams) ==
    /\ follower' = [k \in Numbers |-> IF k \in ks /\ follower[k].to = 0
                                      THEN [follower[k] EXCEPT !.queue = Append(@, i)]
                                      ELSE follower[k]]
    /\ stream' = [streams EXCEPT ![m] = [n \in Members |-> @[n] \o Sent(ks, n, i)]]

(* more: members that do not want it any more, or that m is about to hear of. *)
\* gateway/broker/fan_out.py: publish
Publish(m) ==
    /\ published < Messages
    /\ published' = published + 1
    /\ \E more \in SUBSET (Others(m) \ knows[m]) :
        LET i == published + 1
        IN  /\ Gets(IF Here(m) THEN {i} ELSE {})
            /\ Follow(m, {k \in At(m) : Takes(k, m)}, i,
                      ToAll(stream, m, knows[m] \cup more, Message(i)))
    /\ UNCHANGED <<session, knows, gives, restarts>>

(* m takes what n has passed on for all. *)
\* gateway/site/moving/late_messages.py: forward, deliver_forwarded
TakeMessage(m, n, i, rest) ==
    /\ Gets(IF Here(m) /\ (n \notin session.closed \/ Broken = "no gate") THEN {i} ELSE {})
    /\ Follow(m, {k \in At(m) : Takes(k, n)}, i, rest)
    /\ UNCHANGED session

(* It is for the session that has moved so often, or what follows it from here. *)
\* gateway/site/moving/late_messages.py: receive, _deliver_here
TakeAddressed(m, moves, i, rest) ==
    LET here == Travels(m, moves)
    IN  /\ Gets(IF here THEN {i} ELSE {})
        /\ Follow(m, {k \in At(m) : follower[k].moves = moves /\ ~here}, i, rest)
        /\ UNCHANGED session

----------------------------------------------------------------------------
(* Notices. *)

(* The session and the followers at m hear of a cut of n. *)
\* gateway/site/moving/cuts.py: cut
Opened(m, n, moves) ==
    IF Here(m) /\ (moves >= session.moves \/ Broken = "any cut opens")
    THEN [session EXCEPT !.closed = @ \ {n}] ELSE session
Done(m, n, moves, followers) ==
    [k \in Numbers |->
        IF followers[k].at # m THEN followers[k]
        ELSE [followers[k] EXCEPT !.closed = IF moves >= followers[k].moves THEN @ \ {n} ELSE @,
                                  !.done = IF moves > followers[k].moves THEN @ \cup {n} ELSE @]]

(* The session is at n. *)
\* gateway/site/moving/notices.py: _found; gateway/site/moving/cuts.py: send_to
Found(m, n, moves, followers) ==
    [k \in Numbers |->
        IF k \in At(m) /\ followers[k].moves + 1 = moves
        THEN [followers[k] EXCEPT !.to = n] ELSE followers[k]]

(* A cut that says nothing to whoever is at n, or comes there later, is left out. *)
Needs(n, moves) == session.at = n \/ \E k \in At(n) : follower[k].moves <= moves

\* gateway/site/moving/notices.py: heard
TakeCut(m, n, moves, rest) ==
    /\ session' = Opened(m, n, moves)
    /\ follower' = Done(m, n, moves, follower)
    /\ stream' = rest
    /\ UNCHANGED <<got, twice>>

\* gateway/site/moving/notices.py: heard
TakeAsk(m, n, moves, rest) ==
    LET cut == IF Broken = "no cut of its own" THEN follower ELSE Done(m, n, moves, follower)
        among == IF Broken = "a cut for one alone" THEN {n} ELSE Others(m)
    IN  /\ session' = Opened(m, n, moves)
        /\ follower' = Done(m, m, moves, Found(m, n, moves, cut))
        /\ stream' = ToAll(rest, m, {o \in among : Needs(o, moves)}, Notice("cut", moves))
        /\ UNCHANGED <<got, twice>>

\* gateway/site/moving/cuts.py: end_tail
TakeEnd(m, n, moves, rest) ==
    LET here == Travels(m, moves)
    IN  /\ session' = IF here THEN [session EXCEPT !.tails = @ \ {n}] ELSE session
        /\ follower' = [k \in Numbers |->
                IF k \in At(m) /\ follower[k].moves = moves /\ ~here
                THEN [follower[k] EXCEPT !.tails = @ \ {n}] ELSE follower[k]]
        /\ stream' = rest
        /\ UNCHANGED <<got, twice>>

\* gateway/site/moving/peer_gateway.py: receive, _take, _act
Receive(m, n) ==
    /\ stream[n][m] # <<>>
    /\ LET next == Head(stream[n][m])
           rest == [stream EXCEPT ![n][m] = Tail(@)]
       IN  /\ CASE next.kind = "message" -> TakeMessage(m, n, next.message, rest)
                [] next.kind = "addressed" -> TakeAddressed(m, next.moves, next.message, rest)
                [] next.kind = "cut" -> TakeCut(m, n, next.moves, rest)
                [] next.kind = "ask" -> TakeAsk(m, n, next.moves, rest)
                [] next.kind = "end" -> TakeEnd(m, n, next.moves, rest)
           /\ Known(IF next.kind = "ask" /\ Broken # "asked before its filter"
                    THEN [knows EXCEPT ![m] = @ \cup {n}] ELSE knows)
    /\ UNCHANGED counts

(* The session at m asks all for cuts. They hear of its filter first. *)
\* gateway/site/moving/cuts.py: ask
Asked(m, moves) == ToAll(stream, m, Others(m), Notice("ask", moves))

----------------------------------------------------------------------------
(* The session moves. *)

\* gateway/site/moving/moving.py: leave_forwarder; gateway/site/moving/moving.py: leave
Give(n) ==
    /\ session.to = 0 /\ gives < Gives /\ n # session.at
    /\ gives = 0 => n = 2   \* until then, 2 and 3 are alike
    /\ gives' = gives + 1
    /\ LET left == [NoFollower EXCEPT !.at = session.at, !.moves = session.moves,
                                      !.closed = session.closed, !.tails = session.tails]
       IN  follower' = IF Broken = "no follower" THEN follower
                       ELSE [follower EXCEPT ![gives'] = left]
    /\ session' = [session EXCEPT !.to = n]
    /\ UNCHANGED <<stream, knows, got, twice, published, restarts>>

(* Nobody has taken it, and a third member gets it. *)
\* gateway/site/rules/outbound_moves.py: on_take
GiveElse(n) ==
    /\ session.to # 0 /\ gives < Gives /\ n \notin {session.at, session.to}
    /\ gives' = gives + 1
    /\ session' = [session EXCEPT !.to = n]
    /\ UNCHANGED <<follower, stream, knows, got, twice, published, restarts>>

\* gateway/store/move_in.py: _begin_move; gateway/site/moving/moving.py: arrived
Arrive ==
    /\ session.to # 0
    /\ LET m == session.to
           moves == session.moves + 1
       IN  /\ session' = Session(m, moves, Others(m),
                                 IF Broken = "no follower" THEN {} ELSE {session.at})
           /\ follower' = Done(m, m, moves, follower)
           /\ stream' = Asked(m, moves)
    /\ Known(knows)
    /\ UNCHANGED <<got, twice, counts>>

(* Nobody has taken it: it goes on where it was, with what its follower knows and has. *)
\* gateway/site/moving/moving.py: _come_back
ComeBack ==
    /\ session.to # 0
    /\ LET m == session.at
           ks == {k \in At(m) : follower[k].moves = session.moves /\ follower[k].to = 0}
           left == follower[CHOOSE k \in ks : TRUE]
           closed == IF Broken = "the old gate comes back" THEN session.closed ELSE left.closed
       IN  /\ IF ks = {} THEN session' = [session EXCEPT !.to = 0]
              ELSE session' = Session(m, session.moves, closed, left.tails \cup {m})
           /\ follower' = [k \in Numbers |->
                    IF k \in ks THEN [follower[k] EXCEPT !.to = m] ELSE follower[k]]
           /\ stream' = IF session'.closed = {} THEN stream ELSE Asked(m, session.moves)
    /\ UNCHANGED <<knows, got, twice, counts>>

(* What waits for a follower goes to where the session is. *)
\* gateway/site/moving/late_messages.py: send_on, _forward
SendOn(k) ==
    LET left == follower[k]
        m == left.at
        its == {l \in At(m) : follower[l].moves = left.moves}
        here == Travels(m, left.moves)
        i == Head(left.queue)
    IN  /\ left.to # 0 /\ left.queue # <<>>
        /\ IF IsBack(k)
           THEN /\ Gets(IF here THEN {i} ELSE {})
                /\ follower' = [l \in Numbers |->
                        IF l = k THEN [left EXCEPT !.queue = Tail(@)]
                        ELSE IF l \in its /\ ~here /\ follower[l].to = 0
                        THEN [follower[l] EXCEPT !.queue = Append(@, i)] ELSE follower[l]]
                /\ stream' = IF here THEN stream
                             ELSE [stream EXCEPT ![m] =
                            [n \in Members |-> @[n] \o Sent(its, n, i)]]
           ELSE /\ follower' = [follower EXCEPT ![k].queue = Tail(@)]
                /\ stream' = ToAll(stream, m, {left.to}, Addressed(left.moves + 1, i))
                /\ UNCHANGED <<got, twice>>
        /\ UNCHANGED <<session, knows, counts>>

(* A follower has nothing more to send on. Where the session came back more than once, the last one
   says so. *)
\* gateway/site/moving/cuts.py: end_if_over
Finish(k) ==
    LET left == follower[k]
        m == left.at
        here == Travels(m, left.moves)
        sources == IF Broken = "a member is not waited for" THEN {m, left.to} ELSE Members
        gone == [follower EXCEPT ![k] = NoFollower]
        last == ~\E l \in Numbers : /\ follower[l].at = m /\ follower[l].moves = left.moves
                                    /\ IsBack(l) /\ follower[l].queue # <<>>
        over == IF last \/ Broken = "the first one ends the tail" THEN {m} ELSE {}
    IN  /\ left.to # 0 /\ left.queue = <<>>
        /\ IF IsBack(k)
           THEN /\ session' = IF here THEN [session EXCEPT !.tails = @ \ over] ELSE session
                /\ follower' = [l \in Numbers |->
                        IF l \in At(m) /\ follower[l].moves = left.moves /\ ~here
                        THEN [gone[l] EXCEPT !.tails = @ \ over] ELSE gone[l]]
                /\ UNCHANGED stream
           ELSE /\ left.tails = {} \/ Broken = "no tail is waited for"
                /\ sources \subseteq left.done
                /\ follower' = gone
                /\ stream' = ToAll(stream, m, {left.to}, Notice("end", left.moves + 1))
                /\ UNCHANGED session
        /\ Known(knows)
        /\ UNCHANGED <<got, twice, counts>>

----------------------------------------------------------------------------
(* A power cut, and a start with what is on disk. *)
\* gateway/site/moving/moving.py: begin
Restart(m) ==
    /\ restarts < Restarts
    /\ Here(m) /\ (session.closed # {} \/ session.tails \ {m} # {})
    /\ restarts' = restarts + 1
    /\ stream' = Asked(m, session.moves)
    /\ UNCHANGED <<session, follower, knows, got, twice, published, gives>>

(* What a rule forbids. *)
AskEarly(m) ==
    /\ Broken = "asked before it has arrived"
    /\ session.to # 0 /\ m \in {session.at, session.to}
    /\ ~\E n \in Members : \E j \in DOMAIN stream[m][n] : stream[m][n][j].kind = "ask"
    /\ stream' = Asked(m, session.moves + 1)
    /\ UNCHANGED <<session, follower, knows, got, twice, counts>>

DropCut(m, n) ==
    /\ Broken = "a full queue drops a cut"
    /\ stream[m][n] # <<>> /\ Head(stream[m][n]).kind = "cut"
    /\ stream' = [stream EXCEPT ![m][n] = Tail(@)]
    /\ UNCHANGED <<session, follower, knows, got, twice, counts>>

----------------------------------------------------------------------------
Goes ==
    \/ Arrive \/ ComeBack
    \/ \E k \in Numbers : SendOn(k) \/ Finish(k)
    \/ \E m, n \in Members : Receive(m, n)
Fate ==
    \/ \E n \in Members : Give(n) \/ GiveElse(n)
    \/ \E m \in Members : Publish(m) \/ Restart(m) \/ AskEarly(m)
    \/ \E m, n \in Members : DropCut(m, n)

Next == Goes \/ Fate
Spec == Init /\ [][Next]_vars /\ WF_vars(Goes)

----------------------------------------------------------------------------
NothingIsDoubled == ~twice

(* The session has it, or it waits for it. *)
NothingIsLost ==
    \A i \in 1..published :
        \/ i \in got
        \/ \E k \in Numbers : \E j \in DOMAIN follower[k].queue : follower[k].queue[j] = i
        \/ \E m, n \in Members : \E j \in DOMAIN stream[m][n] : stream[m][n][j].message = i

(* Nothing is under way. *)
IsQuiet ==
    /\ session.to = 0
    /\ \A m, n \in Members : stream[m][n] = <<>>
    /\ \A k \in Numbers : ~ENABLED SendOn(k) /\ ~ENABLED Finish(k)

(* Then the session is one as any other, and has all. *)
NothingIsStuck ==
    IsQuiet => /\ session.closed = {} /\ session.tails = {}
               /\ \A k \in Numbers : follower[k] = NoFollower
               /\ got = 1..published

BecomesQuiet == []<>IsQuiet
=============================================================================

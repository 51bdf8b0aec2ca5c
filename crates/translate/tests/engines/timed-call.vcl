# difference: functions-since-7.7
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
import std;
sub called { }
sub vcl_recv {
  std.timed_call(called);
}

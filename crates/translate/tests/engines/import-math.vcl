# difference: functions-since-9.0
# compiles on: 9.0
vcl 4.1;
backend none none;
import math;
sub vcl_recv {
  set req.http.a = math.sqrt(2.0);
}

# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
import cookie;
sub vcl_recv {
  set req.http.a = cookie.format_date(now, 1d);
}
